// Scorers in Python. When the library asks one for scores, it calls winnow.scorers._score.
#pragma once

#include <exception>
#include <mutex>

namespace winnow::python {

// While one exists, an exception of a scorer becomes Error(kCancelled) and is kept here, for callers that record why a
// piece of work failed and go on. Only one may exist at a time.
class ScorerErrors {
 public:
  ScorerErrors();
  ~ScorerErrors();
  ScorerErrors(const ScorerErrors&) = delete;
  ScorerErrors& operator=(const ScorerErrors&) = delete;

  // If a ScorerErrors exists, keeps the current exception unless it has one, and throws Error(kCancelled); else
  // rethrows it.
  [[noreturn]] static void pass_on();
  // Throws the first exception that was kept, if there is one.
  void rethrow() const;

 private:
  static std::mutex mutex_;
  static ScorerErrors* active_;
  std::exception_ptr first_;
};

}  // namespace winnow::python
