#include "server/generation.h"

#include <algorithm>
#include <chrono>

#include "base/utf8.h"
#include "server/indent_limit.h"

namespace winnow::server {
namespace {

AnswerCause cause_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
    case FinishReason::kStopText:
    case FinishReason::kStopped:
      return AnswerCause::kStop;
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return AnswerCause::kLength;
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;
  }
  return AnswerCause::kError;
}

// Adds the costs of another prompt of the request. Times are the longest ones, since the prompts were answered
// together.
void add(BatchResult& sum, const BatchResult& result) {
  sum.prompt_tokens += result.prompt_tokens;
  sum.cached_tokens += result.cached_tokens;
  sum.answer_tokens += result.answer_tokens;
  sum.queue_s = std::max(sum.queue_s, result.queue_s);
  sum.prefill_s = std::max(sum.prefill_s, result.prefill_s);
  sum.decode_s = std::max(sum.decode_s, result.decode_s);
  sum.cache.entries_full += result.cache.entries_full;
  sum.cache.entries_kept += result.cache.entries_kept;
  sum.cache.bytes_full += result.cache.bytes_full;
  sum.cache.bytes_kept += result.cache.bytes_kept;
}

}  // namespace

bool has_failed(const BatchResult& result) {
  return result.reason == FinishReason::kError || result.reason == FinishReason::kCancelled;
}

struct Generation::Mailbox {
  std::shared_ptr<const Model> model;
  bool wants_tokens;
  std::vector<TextStream> texts;  // by answer; the batch's thread only
  std::vector<std::string> own_stops;
  std::vector<Token> shown_tokens;   // special tokens, ascending
  std::vector<PromptScores> scores;  // by prompt; the batch's thread only
  std::size_t n_left = 0;            // prompts that are not done; the batch's thread only
  std::optional<BatchResult> sum;    // the sum over the prompts that are done

  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<GenerationEvent> events;
  std::size_t n_ended = 0;  // prompts that ended well
  // The limits that end an answer before its tokens do; the batch's thread only.
  struct Limits {
    IndentLimit indent;
    std::optional<std::chrono::steady_clock::time_point> first;  // time of the first token
    bool has_lines = false;
    bool is_reached = false;
  };
  std::vector<Limits> limits;  // of each answer
  double predict_s = 0;

  void put(GenerationEvent event) {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
    arrived.notify_one();
  }

  bool take_token(const BatchToken& token) {
    TextStream& text = texts[static_cast<std::size_t>(token.answer)];
    const bool is_shown = std::binary_search(shown_tokens.begin(), shown_tokens.end(), token.token);
    TextPiece piece{.answer = token.answer, .text = text.add(model->token_text(token.token, is_shown))};
    if (wants_tokens && !text.is_stopped()) piece.tokens.push_back(token);
    const bool is_limited = reaches_limit(token.answer, piece.text);
    if (!piece.text.empty() || !piece.tokens.empty()) put(std::move(piece));
    return !text.is_stopped() && !is_limited;
  }

  // Returns whether the answer has reached a limit. Cuts its text at the indent limit.
  bool reaches_limit(int answer, std::string& text) {
    Limits& limit = limits[static_cast<std::size_t>(answer)];
    limit.is_reached = limit.indent.cut(text);
    if (predict_s <= 0) return limit.is_reached;
    const auto now = std::chrono::steady_clock::now();
    if (!limit.first) limit.first = now;
    limit.has_lines = limit.has_lines || text.find('\n') != std::string::npos;
    const bool is_late = now - *limit.first > std::chrono::duration<double>(predict_s);
    limit.is_reached = limit.is_reached || (limit.has_lines && is_late);
    return limit.is_reached;
  }

  void finish_answer(int answer, FinishReason reason) {
    TextStream& text = texts[static_cast<std::size_t>(answer)];
    std::string rest = text.finish();
    // The tokens ended in the middle of a character: the U+FFFD that stands for its first bytes is left out.
    if (reason == FinishReason::kLength && rest.ends_with(kReplacementText)) {
      rest.resize(rest.size() - kReplacementText.size());
    }
    Limits& limit = limits[static_cast<std::size_t>(answer)];
    limit.is_reached = limit.indent.cut(rest) || limit.is_reached;
    if (!rest.empty()) put(TextPiece{.answer = answer, .text = rest});
    AnswerEnd end{.answer = answer, .cause = cause_of(reason)};
    if (limit.is_reached) end.cause = AnswerCause::kLength;
    if (std::find(own_stops.begin(), own_stops.end(), text.stop()) != own_stops.end()) {
      end.cause = AnswerCause::kStopText;
      end.stop = text.stop();
    }
    put(std::move(end));
  }

  void finish_prompt(std::size_t prompt, const BatchResult& result) {
    if (n_left == 0) return;  // another one failed before
    if (!scores[prompt].tokens.empty()) put(std::move(scores[prompt]));
    if (has_failed(result)) {
      n_left = 0;
      put(result);
      return;
    }
    if (sum) {
      add(*sum, result);
    } else {
      sum = result;
    }
    if (--n_left == 0) put(*sum);
    const std::lock_guard lock(mutex);
    ++n_ended;
    arrived.notify_one();
  }
};

Generation::Generation(Batch& batch, const ApiRequest& request, int n_at_a_time)
    : request_(request),
      n_at_a_time_(static_cast<std::size_t>(n_at_a_time)),
      mailbox_(std::make_shared<Mailbox>()),
      prompts_(batch) {
  mailbox_->model = batch.engine()->model();
  mailbox_->wants_tokens = request.batch.n_probabilities >= 0;
  mailbox_->texts.assign(static_cast<std::size_t>(request.n_answers()), TextStream(request.stops));
  mailbox_->limits.assign(mailbox_->texts.size(), {.indent = IndentLimit(request.n_indent)});
  mailbox_->predict_s = request.predict_s;
  mailbox_->own_stops.assign(request.stops.begin(),
                             request.stops.begin() + static_cast<std::ptrdiff_t>(request.n_own_stops));
  mailbox_->shown_tokens = request.shown_tokens;
  mailbox_->n_left = n_prompts();
  for (std::size_t i = 0; i < n_prompts(); ++i) mailbox_->scores.push_back({.prompt = static_cast<int>(i)});
  submit_more();
}

bool Generation::submit_next() {
  const std::size_t number = prompts_.size();
  const BatchRequest& prompt = number == 0 ? request_.batch : request_.more[number - 1];
  const int first = static_cast<int>(number) * request_.batch.n_answers;
  const std::shared_ptr<Mailbox> mailbox = mailbox_;
  BatchCallbacks callbacks;
  callbacks.on_accept = [mailbox] { mailbox->put(Accepted{}); };
  callbacks.on_prompt_token = [mailbox, number](const BatchToken& token) {
    mailbox->scores[number].tokens.push_back(token);
  };
  callbacks.on_token = [mailbox, first](BatchToken token) {
    token.answer += first;
    return mailbox->take_token(token);
  };
  callbacks.on_finish = [mailbox, first](int answer, FinishReason reason) {
    mailbox->finish_answer(first + answer, reason);
  };
  callbacks.on_done = [mailbox, number](const BatchResult& result) { mailbox->finish_prompt(number, result); };
  return prompts_.submit(prompt, std::move(callbacks));
}

void Generation::submit_more() {
  const std::size_t most = std::min(n_prompts(), n_ended_ + n_at_a_time_);
  while (prompts_.size() < most && submit_next()) {
  }
}

std::optional<GenerationEvent> Generation::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mailbox_->mutex);
  const auto has_ended_more = [&] { return mailbox_->n_ended > n_ended_; };
  mailbox_->arrived.wait_for(lock, wait, [&] { return !mailbox_->events.empty() || has_ended_more(); });
  std::optional<GenerationEvent> event;
  if (!mailbox_->events.empty()) {
    event = std::move(mailbox_->events.front());
    mailbox_->events.pop_front();
  }
  const bool may_have_room = has_ended_more() || !event;
  n_ended_ = mailbox_->n_ended;
  lock.unlock();
  if (may_have_room) submit_more();
  return event;
}

std::string Generation::more_text(int answer, std::size_t n_bytes) {
  const std::lock_guard lock(mailbox_->mutex);
  std::deque<GenerationEvent>& events = mailbox_->events;
  std::string text;
  for (auto event = events.begin(); event != events.end() && text.size() < n_bytes;) {
    const auto* piece = std::get_if<TextPiece>(&*event);
    if (piece == nullptr || piece->answer != answer) {
      ++event;
      continue;
    }
    text += piece->text;
    event = events.erase(event);
  }
  return text;
}

bool Generation::is_done() const {
  const std::lock_guard lock(mailbox_->mutex);
  return !mailbox_->events.empty() && std::holds_alternative<BatchResult>(mailbox_->events.back());
}

}  // namespace winnow::server
