// A batch on a tiny model, and a listener that waits for a request's outcome.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "wait_until.h"
#include "winnow/batch.h"

namespace winnow::test {

// A recorder of a request's callbacks that can wait for tokens and for the result.
class Listener {
 public:
  BatchCallbacks callbacks() {
    BatchCallbacks callbacks;
    callbacks.on_accept = [this] {
      const std::lock_guard lock(mutex_);
      is_accepted_ = true;
      changed_.notify_all();
    };
    callbacks.on_prompt_token = [this](const BatchToken& token) {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(tokens_.empty()) << "a prompt's token behind an answer's";
      prompt_.push_back(token);
    };
    callbacks.on_token = [this](const BatchToken& token) {
      const std::lock_guard lock(mutex_);
      tokens_.push_back(token);
      changed_.notify_all();
      return !wants_token || wants_token(token);
    };
    callbacks.on_finish = [this](int answer, FinishReason reason) {
      const std::lock_guard lock(mutex_);
      finished_.emplace_back(answer, reason);
    };
    callbacks.on_done = [this](const BatchResult& result) {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(is_done_) << "on_done was called twice";
      result_ = result;
      is_done_ = true;
      changed_.notify_all();
    };
    return callbacks;
  }

  const BatchResult& wait() {
    wait_for([this] { return is_done_; });
    return result_;
  }
  void wait_for_tokens(std::size_t n) {
    wait_for([this, n] { return tokens_.size() >= n || is_done_; });
  }
  void wait_for_acceptance() {
    wait_for([this] { return is_accepted_ || is_done_; });
  }

  std::vector<Token> answer(int index = 0) const {
    const std::lock_guard lock(mutex_);
    std::vector<Token> answer;
    for (const BatchToken& token : tokens_) {
      if (token.answer == index) answer.push_back(token.token);
    }
    return answer;
  }
  std::vector<BatchToken> tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  std::vector<BatchToken> prompt() const {
    const std::lock_guard lock(mutex_);
    return prompt_;
  }
  std::vector<std::pair<int, FinishReason>> finished() const {
    const std::lock_guard lock(mutex_);
    return finished_;
  }
  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }

  std::function<bool(const BatchToken&)> wants_token;

 private:
  void wait_for(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), condition)) << "a request does not end";
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_accepted_ = false, is_done_ = false;
  std::vector<BatchToken> tokens_, prompt_;
  std::vector<std::pair<int, FinishReason>> finished_;
  BatchResult result_;
};

inline SessionOptions batch_options(const std::string& method = "full", const std::string& budget = "") {
  SessionOptions options;
  options.eviction = EvictionOptions::parse(method);
  if (!budget.empty()) options.budget = Budget::parse(budget);
  return options;
}

inline BatchRequest batch_request(int n_context, int n_prompt, std::uint32_t seed, const SessionOptions& options,
                                  std::int32_t max_tokens) {
  BatchRequest request;
  if (n_context > 0) request.context = random_tokens(n_context, 300, seed);
  request.prompt = random_tokens(n_prompt, 300, seed + 1000);
  request.session = options;
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_end = true;  // random models may end at any token
  return request;
}

class BatchTest : public testing::Test {
 protected:
  std::unique_ptr<Batch> make_batch(const BatchOptions& options = {}, std::size_t kv_limit = 0, int n_threads = 1) {
#ifdef __SANITIZE_THREAD__
    n_threads = 1;  // ThreadSanitizer does not see OpenMP's barriers; the batch's own threads run as before
#endif
    engine_ = Engine::create(model_, {.n_threads = n_threads, .kv_bytes_limit = kv_limit, .n_batch = 64});
    return std::make_unique<Batch>(engine_, options);
  }
  std::size_t bytes_in_use() const { return engine_->memory().kv_bytes_in_use; }

  const TinyModel file_;
  const std::shared_ptr<const Model> model_ = Model::load(file_.path());
  std::shared_ptr<Engine> engine_;
};

}  // namespace winnow::test
