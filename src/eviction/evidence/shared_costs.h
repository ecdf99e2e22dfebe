// A cost account for results that several users share: each is charged as many seconds as if it had worked alone. The
// first user does the work, and must not look slower than users that reuse its results.
#pragma once

#include <functional>
#include <vector>

namespace winnow {

// The account. Not thread-safe.
class SharedCosts {
 public:
  // A result that is made once. Must not move while it is in use.
  class Item {
   private:
    friend class SharedCosts;
    double seconds_ = 0;        // time to make it, without its parts
    std::vector<Item*> parts_;  // results that it was made from
    bool is_made_ = false;
    int payer_ = 0;  // the last user that was charged for it
  };

  using Clock = std::function<double()>;  // seconds
  explicit SharedCosts(Clock clock = steady_seconds) : clock_(std::move(clock)) {}

  // Begins the account of the next user, with no charges.
  void begin_user();

  // Calls `make` if the item is not made yet. In either case the present user is charged for the item and its parts,
  // each once.
  void use(Item& item, const std::function<void()>& make);

  // Returns the seconds of items that the present user used and others made, by which its own time would be longer had
  // it worked alone.
  double reused_seconds() const { return paid_ - made_; }

 private:
  static double steady_seconds();
  void pay(Item& item);

  Clock clock_;
  int payer_ = 1;
  double paid_ = 0, made_ = 0;  // seconds of items that the present user used, and of those that it made
  std::vector<Item*> making_;   // items that are being made, each nested in the one before
  double inside_ = 0;           // seconds of parts of the innermost one
};

}  // namespace winnow
