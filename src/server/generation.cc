#include "server/generation.h"

#include <algorithm>

namespace winnow::server {
namespace {

const char* reason_text(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
    case FinishReason::kStopText:
    case FinishReason::kStopped:
      return "stop";
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return "length";
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;
  }
  return "error";
}

}  // namespace

struct Generation::Mailbox {
  std::shared_ptr<const Model> model;
  bool wants_tokens;
  std::vector<TextStream> texts;    // by answer; the batch's thread only
  std::vector<Token> shown_tokens;  // special ones, ascending

  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<GenerationEvent> events;

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
    if (!piece.text.empty() || !piece.tokens.empty()) put(std::move(piece));
    return !text.is_stopped();
  }

  void finish_answer(int answer, FinishReason reason) {
    TextStream& text = texts[static_cast<std::size_t>(answer)];
    const std::string rest = text.finish();
    if (!rest.empty()) put(TextPiece{.answer = answer, .text = rest});
    put(AnswerEnd{.answer = answer, .reason = reason_text(reason)});
  }
};

Generation::Generation(Batch& batch, const ApiRequest& request) : batch_(batch), mailbox_(std::make_shared<Mailbox>()) {
  mailbox_->model = batch.engine()->model();
  mailbox_->wants_tokens = request.batch.n_probabilities >= 0;
  mailbox_->texts.assign(static_cast<std::size_t>(request.batch.n_answers), TextStream(request.stops));
  mailbox_->shown_tokens = request.shown_tokens;
  const std::shared_ptr<Mailbox> mailbox = mailbox_;
  BatchCallbacks callbacks;
  callbacks.on_accept = [mailbox] { mailbox->put(Accepted{}); };
  callbacks.on_token = [mailbox](const BatchToken& token) { return mailbox->take_token(token); };
  callbacks.on_finish = [mailbox](int answer, FinishReason reason) { mailbox->finish_answer(answer, reason); };
  callbacks.on_done = [mailbox](const BatchResult& result) { mailbox->put(result); };
  id_ = batch.submit(request.batch, std::move(callbacks));
}

Generation::~Generation() { batch_.cancel(id_); }

std::optional<GenerationEvent> Generation::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mailbox_->mutex);
  mailbox_->arrived.wait_for(lock, wait, [&] { return !mailbox_->events.empty(); });
  if (mailbox_->events.empty()) return std::nullopt;
  GenerationEvent event = std::move(mailbox_->events.front());
  mailbox_->events.pop_front();
  return event;
}

bool Generation::is_done() const {
  const std::lock_guard lock(mailbox_->mutex);
  return !mailbox_->events.empty() && std::holds_alternative<BatchResult>(mailbox_->events.back());
}

}  // namespace winnow::server
