// Scorers in Python: what the library asks of one is a call of winnow.scorers._score.
#pragma once

#include <exception>
#include <mutex>

namespace winnow::python {

// While it lives, an exception of a scorer becomes Error(kCancelled), and is kept here: for callers that write down why
// a piece of work failed and go on. One at a time.
class ScorerErrors {
 public:
  ScorerErrors();
  ~ScorerErrors();
  ScorerErrors(const ScorerErrors&) = delete;
  ScorerErrors& operator=(const ScorerErrors&) = delete;

  // The present exception's place: kept if one lives, else thrown on.
  [[noreturn]] static void pass_on();
  // Throws what was kept.
  void rethrow() const;

 private:
  static std::mutex mutex_;
  static ScorerErrors* active_;
  std::exception_ptr first_;
};

}  // namespace winnow::python
