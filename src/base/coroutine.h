// A C++20 coroutine that pauses at each co_yield, for work that is done step by step.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace winnow {

// A coroutine and the values that it yields, which are copied. Not thread-safe.
template <class T>
class Coroutine {
 public:
  struct promise_type {
    Coroutine get_return_object() { return Coroutine(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    std::suspend_always yield_value(const T& next) noexcept {
      value = next;
      return {};
    }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }

    std::optional<T> value;
    std::exception_ptr error;
  };

  Coroutine(Coroutine&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;
  ~Coroutine() {
    if (coroutine_) coroutine_.destroy();
  }

  // Runs to the next co_yield or to the end. Rethrows an exception that leaves the coroutine, which ends it, too.
  void next() {
    coroutine_.resume();
    if (coroutine_.promise().error) std::rethrow_exception(std::exchange(coroutine_.promise().error, nullptr));
  }
  bool is_done() const { return coroutine_.done(); }
  // Returns the value that was yielded last. May be called after next(), and until is_done().
  const T& value() const { return *coroutine_.promise().value; }

 private:
  explicit Coroutine(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}

  std::coroutine_handle<promise_type> coroutine_;
};

}  // namespace winnow
