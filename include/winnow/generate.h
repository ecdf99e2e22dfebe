// Text generation: tokens are sampled and fed until there is a reason to end, and shown as whole characters. Also chat
// prompts that are split before the question, so that the context can be read and compressed by itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/api.h"
#include "winnow/chat.h"
#include "winnow/model.h"
#include "winnow/sampling.h"

namespace WINNOW_API winnow {

class Session;

// The reason for the end of an answer.
enum class FinishReason {
  kEndOfText,    // the model chose an end-of-generation token
  kLength,       // max_tokens (which a Batch lowers to what the context has room for)
  kContextFull,  // the context has no room for another token
  kStopText,     // one of the stop texts appeared
  kStopped,      // a callback returned false
  kCancelled,    // the request was cancelled, or is_cancelled returned true
  kError,        // an error ended it (Batch)
};

// A filter from tokens' bytes to text that can be shown: whole characters of UTF-8, and nothing of a stop text. Bytes
// that are not valid UTF-8 become U+FFFD.
//
// Not thread-safe; one per answer.
class TextStream {
 public:
  // Takes the texts that end the answer and do not belong to it. Throws Error(kInvalidArgument) for an empty one.
  explicit TextStream(std::vector<std::string> stops = {});

  // Adds a token's bytes and returns the text that can be shown now. A part of a character, and text that may be the
  // beginning of a stop text, is held back. Returns nothing more once is_stopped().
  std::string add(std::string_view bytes);
  // Returns the text that was held back, at the end of an answer that no stop text ended.
  std::string finish();
  bool is_stopped() const { return is_stopped_; }
  // Returns the stop text that came first; empty before one came.
  const std::string& stop() const { return stop_; }

 private:
  // Returns the number of bytes of held_ that cannot be shown yet.
  std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::string held_, stop_;
  bool is_stopped_ = false;
};

// Settings of generate().
struct GenerationOptions {
  int max_tokens = -1;             // most tokens of the answer; -1: until there is another reason to end
  std::vector<std::string> stops;  // texts that end the answer and do not belong to it
  bool ignore_end = false;         // never chooses an end-of-generation token
  // Special tokens whose text is shown as a part of the answer (ChatPrompt::shown_tokens).
  std::vector<Token> shown_tokens;
  // true: the last token is fed, so that the session can go on after it (a chat). false: it is not, which saves a step.
  bool feed_last = true;
  std::function<bool()> is_cancelled;  // asked before every token; true ends the answer with kCancelled
  // Called before every choice with a copy of the logits [n_vocab]. It may change them for this choice, but may not set
  // any to NaN or all to minus infinity. Returning false ends the answer with kStopped.
  std::function<bool(std::span<float> logits)> before_choice;
};

// One token of an answer, or its end.
struct GenerationStep {
  Token token = -1;          // -1 in the last step, which has no token
  std::string_view text;     // whole characters that can be shown now, possibly none; valid during the call
  bool is_last = false;      // true: nothing follows, and `text` is what was held back
  FinishReason reason = {};  // set in the last step
};

// Called for every token, and once more for the end. Returning false ends the answer with kStopped; it is then not
// called again.
using StepCallback = std::function<bool(const GenerationStep&)>;

// A whole answer.
struct GenerationResult {
  std::vector<Token> tokens;  // tokens of the answer and of a stop text that ended it, without an end token
  std::string text;           // the text as it was shown
  FinishReason reason = FinishReason::kEndOfText;
  std::chrono::steady_clock::time_point first_token_at;  // time at which it was chosen; valid if there are tokens
};

// Generates an answer, beginning with the session's present logits, and returns it. Throws what Session::logits and
// Session::decode throw, except that kContextFull is a FinishReason, and Error(kInvalidArgument) for an empty stop
// text.
GenerationResult generate(Session& session, Sampler& sampler, const GenerationOptions& options = {},
                          const StepCallback& on_step = {});

// A pull-style generate(): each next() yields one token. The session and the sampler must outlive it. If the program
// feeds the session in between, the answer goes on from there. Not thread-safe.
class Generator {
 public:
  // Throws Error(kInvalidArgument) for an empty stop text.
  Generator(Session& session, Sampler& sampler, GenerationOptions options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // Feeds the token of the step before if another follows it, chooses a token and returns its step. Session::logits()
  // are then those from which it was chosen; they and the step's text are valid until the next call. Must not be called
  // after the last step. Throws what generate() throws.
  GenerationStep next();

  // Ends the answer: the next step is the last, with kStopped.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A prompt in two pieces: the context before the question, and the rest up to the beginning of the answer.
struct SplitPrompt {
  std::string before, after;
};

// A place in a chat: before byte `offset` of the content of the message with index `message`.
struct ChatPlace {
  std::size_t message;
  std::size_t offset = 0;
};

// Renders the messages in the model's chat template, with the header of an answer to come, and returns the prompt split
// at a place. Throws Error(kUnsupported) for a model without a template, or one whose template does not show a message
// exactly once, and Error(kInvalidArgument) for a place that is not in the messages.
SplitPrompt split_chat(const Model& model, std::vector<ChatMessage> messages, ChatPlace place);

// Returns the same with tools and thinking. `prompt` receives all that the template gives, with the whole text.
SplitPrompt split_chat(const Model& model, std::vector<ChatMessage> messages, ChatPlace place,
                       const ChatOptions& options, ChatPrompt& prompt);

// Returns the prompt of one user message `document` + `question`, split between the two. It has a system message unless
// `system` is empty.
SplitPrompt split_chat(const Model& model, const std::string& system, const std::string& document,
                       const std::string& question);

// Returns the text that follows an assistant's answer when the user speaks again: the answer's end mark, the message
// and the header of the next answer. It does not depend on the turns before.
std::string chat_turn(const Model& model, const std::string& message);

// The tokens of a SplitPrompt.
struct PromptTokens {
  std::vector<Token> context;   // tokens of `before`, with the begin token; empty if `before` is
  std::vector<Token> question;  // tokens of `after`, with the begin token if there is no context
  std::size_t size() const { return context.size() + question.size(); }
};

// Returns the tokens of a split prompt. The pieces are tokenised apart, so that what is kept of the context does not
// depend on the question. Texts of special tokens become those tokens.
PromptTokens tokenize(const Model& model, const SplitPrompt& prompt);

}  // namespace winnow
