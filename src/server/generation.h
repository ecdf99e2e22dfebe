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
#include "winnow/batch.h"
#include "winnow/generate.h"

namespace winnow::server {

// Why an answer ended.
enum class AnswerCause {
  kStop,       // the model ended it, or a text that belongs to its template
  kStopText,   // a stop text of the request
  kLength,     // no tokens or no context left
  kToolCalls,  // the model waits for answers to its calls
  kError,
};

struct Accepted {};
struct TextPiece {
  int answer;
  std::string text;
  std::vector<BatchToken> tokens;  // where probabilities are wanted
};
struct AnswerEnd {
  int answer = 0;
  AnswerCause cause = AnswerCause::kStop;
  std::string stop;  // kStopText: the text
};
// The tokens of one of the request's prompts, where their probabilities are wanted: behind all of its answers.
struct PromptScores {
  int prompt;
  std::vector<BatchToken> tokens;
};
using GenerationEvent = std::variant<Accepted, TextPiece, AnswerEnd, PromptScores, BatchResult>;

// Whether a request ended in an error or was cancelled, so that its answers are not whole.
bool has_failed(const BatchResult& result);

// The last event is the BatchResult: of all of the request's prompts together, or of the first that failed. Gone (and
// cancelled) with its last owner.
class Generation {
 public:
  // Throws what Batch::submit throws.
  Generation(Batch& batch, const ApiRequest& request);
  // Cancels what is not done.
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // The next event, or nothing if there was none in that time.
  std::optional<GenerationEvent> next(std::chrono::milliseconds wait);
  // Whether the last event has arrived: all that is left can be read without waiting.
  bool is_done() const;

 private:
  void cancel();

  // Shared with the batch's thread.
  struct Mailbox;

  Batch& batch_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<std::uint64_t> ids_;
};

}  // namespace winnow::server
