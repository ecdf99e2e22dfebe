// Text after a prompt: tokens are chosen and fed until there is a reason to end, and shown as whole characters; and
// chats split before the question, so that what comes before it can be read and compressed for itself.
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

// Why an answer ended.
enum class FinishReason {
  kEndOfText,    // the model ended it
  kLength,       // max_tokens (which a Batch lowers to what the context has room for)
  kContextFull,  // the context has no room for another token
  kStopText,     // one of the stop texts appeared
  kStopped,      // a callback returned false
  kCancelled,    // somebody asked for the end of the work
  kError,
};

// Tokens' bytes on their way to a reader: whole characters of UTF-8 only, and nothing of a stop text. Bytes that are no
// character become U+FFFD.
//
// Not thread-safe; one per answer.
class TextStream {
 public:
  // `stops`: texts that end the answer and do not belong to it. Throws Error(kInvalidArgument) for an empty one.
  explicit TextStream(std::vector<std::string> stops = {});

  // Adds a token's bytes; returns what can be shown now. What may be the beginning of a stop text or is a part of a
  // character is held back. Nothing is shown any more once is_stopped().
  std::string add(std::string_view bytes);
  // What was held back, at the end of an answer that no stop text ended.
  std::string finish();
  bool is_stopped() const { return is_stopped_; }
  // The stop text that came first; empty before.
  const std::string& stop() const { return stop_; }

 private:
  // Bytes of held_ that cannot be shown yet.
  std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::string held_, stop_;
  bool is_stopped_ = false;
};

struct GenerationOptions {
  int max_tokens = -1;             // -1: until there is another reason
  std::vector<std::string> stops;  // texts that end the answer and do not belong to it
  bool ignore_end = false;         // never choose an end-of-generation token
  // Special tokens whose text is a part of the answer's (ChatPrompt::shown_tokens).
  std::vector<Token> shown_tokens;
  // Whether the session ends behind the last token, to go on from there (a chat), or before it, which saves a step.
  bool feed_last = true;
  std::function<bool()> is_cancelled;  // asked before every token
  // Called before every choice with a copy of the logits [n_vocab], which it may change for the choice (but to no NaN,
  // nor all to minus infinity). False ends the answer with kStopped.
  std::function<bool(std::span<float> logits)> before_choice;
};

// What happened for one token.
struct GenerationStep {
  Token token = -1;          // -1 in the last step, which no token belongs to
  std::string_view text;     // whole characters that can be shown now, possibly none; valid during the call
  bool is_last = false;      // nothing follows; `text` is what was held back
  FinishReason reason = {};  // in the last step
};

// Called for every token, and once more for the end. False ends the answer with kStopped; it is then not called again.
using StepCallback = std::function<bool(const GenerationStep&)>;

struct GenerationResult {
  std::vector<Token> tokens;  // without an end token; those of a stop text are among them
  std::string text;           // as it was shown
  FinishReason reason = FinishReason::kEndOfText;
  std::chrono::steady_clock::time_point first_token_at;  // when it was chosen; valid if there are tokens
};

// Generates tokens from the session's logits on. Throws what Session::logits and Session::decode throw but for
// kContextFull, which is a reason, and Error(kInvalidArgument) for an empty stop text.
GenerationResult generate(Session& session, Sampler& sampler, const GenerationOptions& options = {},
                          const StepCallback& on_step = {});

// A pull-style generate(): each next() yields one token. The session and the sampler must outlive it; feeding the
// session in between changes what follows. Not thread-safe.
class Generator {
 public:
  // Throws Error(kInvalidArgument) for an empty stop text.
  Generator(Session& session, Sampler& sampler, GenerationOptions options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // Feeds the token of the step before, where another follows, and chooses one: until the next call Session::logits()
  // is what it was chosen from. The step's text is valid until then, too. Not to be called behind the last step. Throws
  // what generate throws.
  GenerationStep next();

  // Nobody wants more: the next step is the last, with kStopped.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A prompt in two pieces: what is known before the question, and the rest up to where the answer begins.
struct SplitPrompt {
  std::string before, after;
};

// A place in a chat: before byte `offset` of what message `message` says.
struct ChatPlace {
  std::size_t message;
  std::size_t offset = 0;
};

// The messages in the model's chat template, with the header of an answer to come, split at a place. Throws
// Error(kUnsupported) for a model without a template, or one whose template does not show a message exactly once.
SplitPrompt split_chat(const Model& model, std::vector<ChatMessage> messages, ChatPlace place);

// The same with tools and thinking. `prompt`: all that the template gives, its text the whole.
SplitPrompt split_chat(const Model& model, std::vector<ChatMessage> messages, ChatPlace place,
                       const ChatOptions& options, ChatPrompt& prompt);

// One user message `document` + `question`, split between the two; with a system message unless `system` is empty.
SplitPrompt split_chat(const Model& model, const std::string& system, const std::string& document,
                       const std::string& question);

// What follows an assistant's answer when the user speaks again: the answer's end mark, the message, the header of the
// next answer. It does not depend on what was said before.
std::string chat_turn(const Model& model, const std::string& message);

struct PromptTokens {
  std::vector<Token> context;   // with the begin token; empty where `before` is
  std::vector<Token> question;  // with the begin token where there is no context
  std::size_t size() const { return context.size() + question.size(); }
};

// The pieces are tokenised apart: what of the context is kept does not depend on the question. Texts of special tokens
// become those tokens.
PromptTokens tokenize(const Model& model, const SplitPrompt& prompt);

}  // namespace winnow
