// A request's answers on their way from the batch's thread to the one that talks to the client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/api_request.h"
#include "server/submissions.h"
#include "winnow/batch.h"
#include "winnow/generate.h"

namespace winnow::server {

// The reason for the end of an answer.
enum class AnswerCause {
  kStop,       // the model ended it, or a stop text of its template
  kStopText,   // a stop text of the request
  kLength,     // no tokens or no context left
  kToolCalls,  // the model waits for answers to its calls
  kError,
};

struct Accepted {};
struct TextPiece {
  int answer;
  std::string text;
  std::vector<BatchToken> tokens;  // set if probabilities are wanted
};
struct AnswerEnd {
  int answer = 0;
  AnswerCause cause = AnswerCause::kStop;
  std::string stop;  // kStopText: the text
};
// The tokens of one of the request's prompts with their probabilities, if wanted. Comes after all of its answers.
struct PromptScores {
  int prompt;
  std::vector<BatchToken> tokens;
};
using GenerationEvent = std::variant<Accepted, TextPiece, AnswerEnd, PromptScores, BatchResult>;

// Returns whether a request ended in an error or was cancelled, so that its answers are not whole.
bool has_failed(const BatchResult& result);

// The answers to a request's prompts as events. The last event is the BatchResult: of all prompts together, or of the
// first that failed. Destroying it cancels the prompts that are not done.
class Generation {
 public:
  // The request has to outlive it. `n_at_a_time`: the most prompts in the batch at a time, since more would only delay
  // other requests. Throws what Batch::submit throws for the first prompt; others wait for room in the queue.
  Generation(Batch& batch, const ApiRequest& request, int n_at_a_time);

  // Returns the next event, or nullopt if there was none in that time. Submits further prompts; throws what
  // Batch::submit throws, but QueueFull.
  std::optional<GenerationEvent> next(std::chrono::milliseconds wait);
  // Returns the text that has arrived behind a piece of an answer: whole pieces, until they have this many bytes.
  std::string more_text(int answer, std::size_t n_bytes);
  // Returns whether the last event has arrived, so that all that are left can be read without waiting.
  bool is_done() const;

 private:
  std::size_t n_prompts() const { return 1 + request_.more.size(); }
  // Submits the next prompt. Returns and throws what Submissions::submit does.
  bool submit_next();
  void submit_more();

  // The state shared with the batch's thread.
  struct Mailbox;

  const ApiRequest& request_;
  const std::size_t n_at_a_time_;
  const std::shared_ptr<Mailbox> mailbox_;
  Submissions prompts_;
  std::size_t n_ended_ = 0;  // Mailbox::n_ended when prompts were submitted last
};

}  // namespace winnow::server
