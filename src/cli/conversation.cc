#include "cli/conversation.h"

#include <utility>

#include "base/process_memory.h"
#include "base/utf8.h"
#include "cli/feed_prompt.h"
#include "cli/number_text.h"
#include "cli/session_sampler.h"
#include "cli/text_output.h"
#include "eviction/cut/cut.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

// Returns what a session keeps of its conversation, as text.
std::string settings_of(const Session& session) {
  const SessionOptions& options = session.options();
  return "context " + count_text(options.n_ctx) + ", " + options.eviction.text() +
         (options.budget ? ", budget " + options.budget->text() : "");
}

// Returns whether the budget is a part of the conversation.
bool has_relative_budget(const Session& session) {
  return session.options().budget && session.options().budget->is_relative();
}

// Returns whether nothing was cut from a session that was loaded. Other budgets than a part of the conversation cut it
// alike in either case.
bool is_uncut(const Session& loaded) {
  const SessionStatistics statistics = loaded.statistics();
  return has_relative_budget(loaded) && !statistics.promise && statistics.entries_kept >= statistics.entries_full;
}

// Returns whether the session's method can cut a cache that it has cut before, or that was appended to.
bool cuts_again(const Session& session) { return !Cut::needs(session.options().eviction).reconstruction_only; }

// Returns the text of tokens with that of special ones.
std::string whole_text(const Model& model, std::span<const Token> tokens) {
  std::string text;
  for (const Token token : tokens) text += model.token_text(token, true);
  return text;
}

// Returns whether the tokens contain the text that ends a message. Texts are compared, since a tokenizer may join the
// beginning of the end to the message ("?" and "\n" to "?\n"), put a space before a text of its own and strip blanks
// beside special tokens: the text is what the tokenizer makes of it behind a message.
bool has_message_end(const Model& model, std::span<const Token> tokens, const std::string& message_end) {
  constexpr char kMessage = '?';
  const std::string ended = whole_text(model, model.tokenize(kMessage + message_end, false, true));
  return whole_text(model, tokens).find(ended.substr(ended.find(kMessage) + 1)) != std::string::npos;
}

}  // namespace

Conversation::Conversation(std::shared_ptr<Engine> engine, ConversationOptions options)
    : engine_(std::move(engine)), options_(std::move(options)), session_(engine_->open(options_.session)) {
  // A model without a template is refused before anybody types.
  chat_turn(*engine_->model(), "");
}

bool Conversation::read_document(const Interrupt& interrupt) {
  if (options_.document.empty() || session_.n_tokens() > 0) return true;
  const Model& model = *engine_->model();
  const SplitPrompt text = split_chat(model, options_.system, options_.document + "\n\n", "");
  const std::vector<Token> tokens = model.tokenize(text.before, true, true);
  check_room(tokens.size());
  if (!feed(tokens, interrupt)) return false;
  document_end_ = text.after;
  return true;
}

bool Conversation::feed(std::span<const Token> tokens, const Interrupt& interrupt) {
  const std::size_t n_before = session_.tokens().size();
  if (n_before + tokens.size() < n_least()) return feed_prompt(session_, tokens, FeedMode::kAppend, interrupt);
  if (n_before == 0 || !is_uncut_) {
    const FeedMode mode = n_before == 0 || cuts_again(session_) ? FeedMode::kCut : FeedMode::kAppend;
    if (!feed_prompt(session_, tokens, mode, interrupt)) return false;
    is_uncut_ = false;
    return true;
  }
  // The conversation so far was kept whole: it is read again, so that all is cut as a first prompt is.
  std::vector<Token> all(session_.tokens().begin(), session_.tokens().end());
  all.insert(all.end(), tokens.begin(), tokens.end());
  Session whole = engine_->open(session_.options());
  if (!feed_prompt(whole, all, FeedMode::kCut, interrupt)) return false;
  session_ = std::move(whole);
  is_uncut_ = false;
  return true;
}

std::size_t Conversation::n_least() const {
  constexpr std::int32_t kShort = 256;
  if (!session_.options().budget) return 0;
  return static_cast<std::size_t>(options_.min_kv_tokens.value_or(has_relative_budget(session_) ? kShort : 0));
}

Sampler Conversation::next_sampler() {
  // Each answer gets a new sampler, since a grammar starts again; the seed moves on, so that answers differ.
  SamplingOptions sampling = options_.sampling;
  const bool random_seed = sampling.seed == SamplingOptions{}.seed;
  // The largest number would ask for a random seed.
  if (!random_seed) sampling.seed = (std::uint64_t{sampling.seed} + n_answers_) % SamplingOptions{}.seed;
  ++n_answers_;
  return make_sampler(engine_->model(), sampling, session_);
}

FinishReason Conversation::say(const std::string& message, const Interrupt& interrupt) {
  const auto start = std::chrono::steady_clock::now();
  const Model& model = *engine_->model();
  // The tokenizer would count the template's bytes, too.
  check_utf8(message, "the message");
  if (!read_document(interrupt)) return FinishReason::kCancelled;
  std::string text;
  if (document_end_) {
    text = message + *document_end_;
  } else if (session_.n_tokens() == 0) {
    const SplitPrompt turn = split_chat(model, options_.system, "", message);
    text = turn.before + turn.after;
  } else {
    text = chat_turn(model, message);
  }
  const std::vector<Token> tokens = model.tokenize(text, session_.n_tokens() == 0, true);
  check_room(tokens.size());
  if (!feed(tokens, interrupt)) return FinishReason::kCancelled;
  document_end_.reset();

  Sampler sampler = next_sampler();
  const GenerationResult answer = generate(
      session_, sampler, {.max_tokens = options_.max_tokens, .is_cancelled = [&] { return interrupt.requested(); }},
      [](const GenerationStep& step) { return write_output(step.text); });
  generated_.insert(generated_.end(), answer.tokens.begin(), answer.tokens.end());
  if (!answer.tokens.empty()) ttft_s_ = std::chrono::duration<double>(answer.first_token_at - start).count();
  if (answer.reason == FinishReason::kStopped) return answer.reason;
  return write_output("\n") ? answer.reason : FinishReason::kStopped;
}

void Conversation::check_room(std::size_t n_tokens) const {
  const std::int32_t n_ctx = session_.options().n_ctx;
  const std::int64_t needed = session_.n_tokens() + static_cast<std::int64_t>(n_tokens);
  if (session_file_.empty() || needed <= n_ctx) return check_context(session_, *engine_->model(), n_tokens);
  throw Error(ErrorCode::kContextFull, "the conversation has " + count_text(needed) +
                                           " tokens, more than the context of " + count_text(n_ctx) + " with which '" +
                                           session_file_ + "' was saved: shorten the message, or /clear starts again");
}

void Conversation::clear() {
  session_ = engine_->open(options_.session);
  is_uncut_ = true;
  session_file_.clear();
  document_end_.reset();
  generated_.clear();
}

std::string Conversation::load(const std::string& path) {
  session_ = engine_->load_session(path);
  is_uncut_ = is_uncut(session_);
  session_file_ = path;
  document_end_.reset();
  // A session that was saved before the first question ends within the first message, behind its document.
  const Model& model = *engine_->model();
  const std::string message_end = split_chat(model, options_.system, "\n\n", "").after;
  if (session_.n_tokens() > 0 && !has_message_end(model, session_.tokens(), message_end)) document_end_ = message_end;
  generated_.clear();
  const std::string settings = settings_of(session_);
  return settings == settings_of(engine_->open(options_.session)) ? "" : settings;
}

RunReport Conversation::report() const {
  RunReport report;
  report.method = session_.options().eviction.text();
  if (session_.options().budget) report.budget = session_.options().budget->text();
  report.token_ids = generated_;
  report.statistics = session_.statistics();
  report.ttft_s = ttft_s_;
  report.load_s = options_.load_s;
  report.rss_peak_bytes = rss_peak_bytes();
  return report;
}

}  // namespace winnow::cli
