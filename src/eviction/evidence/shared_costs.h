// What work that several users share costs each of them: as many seconds as if it had worked alone. Whoever comes first
// does the work, and must not look slower for it than those who find it done.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <vector>

namespace winnow {

class SharedCosts {
 public:
  // A result that is made once. Must not move while it is in use.
  class Item {
   private:
    friend class SharedCosts;
    double seconds_ = 0;        // without its parts'
    std::vector<Item*> parts_;  // results that it was made from
    bool is_made_ = false;
    int payer_ = 0;  // the last who paid
  };

  using Clock = std::function<double()>;  // seconds
  explicit SharedCosts(Clock clock = steady_seconds) : clock_(std::move(clock)) {}

  // The next user, who has paid for nothing yet.
  void begin_user();

  // Calls `make` if nobody did. Either way the present user pays for the item and its parts, each once.
  void use(Item& item, const std::function<void()>& make);

  // Seconds of what the present user used and others had made: what its own time would be longer by, had it been alone.
  double reused_seconds() const { return paid_ - made_; }

 private:
  static double steady_seconds();
  void pay(Item& item);

  Clock clock_;
  int payer_ = 1;
  double paid_ = 0, made_ = 0;  // of the present user
  std::vector<Item*> making_;   // one inside the other
  double inside_ = 0;           // seconds of parts of the innermost one
};

}  // namespace winnow
