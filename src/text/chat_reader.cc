// Reads an answer while it is written: thoughts, text and calls, as the chat's template has them.
#include <chat-peg-parser.h>
#include <chat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "text/chat_format.h"
#include "text/chat_template.h"

namespace winnow {

bool is_too_deep(std::string_view text) {
  constexpr int kMostOpen = 200;
  int n_open = 0;
  for (const char letter : text) {
    n_open += letter == '[' || letter == '{' ? 1 : letter == ']' || letter == '}' ? -1 : 0;
    if (n_open > kMostOpen) return true;
  }
  return false;
}

namespace {

// Returns nine letters and digits, since some templates refuse any other id of a call.
std::string random_call_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string id(9, ' ');
  for (char& letter : id) letter = kLetters[random() % kLetters.size()];
  return id;
}

// Returns the content up to the last of gpt-oss's headers if that is not complete.
std::string without_open_header(const std::string& content) {
  const std::size_t begin = content.rfind("<|channel|>");
  const bool is_open = begin != std::string::npos && content.find("<|message|>", begin) == std::string::npos;
  return is_open ? content.substr(0, begin) : content;
}

// Returns what `now` has beyond `before`, or "" if it does not begin with it.
std::string added(const std::string& before, const std::string& now) {
  return now.starts_with(before) ? now.substr(before.size()) : "";
}

}  // namespace

struct ChatReader::Impl {
  std::shared_ptr<const ChatFormat> format;
  std::string text;
  // The client has written this of a message that the answer continues. It is neither in a delta nor in `message`.
  std::string begun_reasoning, begun_content;
  ChatMessage message;
  std::size_t n_fitting = 0;                // bytes of `text` that have fitted the format
  std::optional<std::size_t> n_misfitting;  // bytes of `text` with which it first fitted no more; nullopt: it fits
  bool is_plain = false;                    // the text has left the format: all that follows is content

  // Returns nullopt if the text does not fit. is_partial: what came before the place where it stops fitting is enough.
  std::optional<common_chat_msg> parse(bool is_partial) const {
    if (is_too_deep(format->parameters.generation_prompt) || is_too_deep(text)) return std::nullopt;
    try {
      return common_chat_parse(text, is_partial, format->parameters);
    } catch (const std::exception&) {
      return format->apart ? parse_apart(is_partial) : std::nullopt;
    }
  }

  std::optional<common_chat_msg> parse_apart(bool is_partial) const {
    try {
      common_chat_msg parsed = common_chat_parse(text, is_partial, *format->apart);
      if (parsed.reasoning_content.empty()) return parsed;
      const bool is_over = !parsed.content.empty() || !parsed.tool_calls.empty();
      parsed.content =
          format->thinking_begin + parsed.reasoning_content + (is_over ? format->thinking_end : "") + parsed.content;
      parsed.reasoning_content.clear();
      return parsed;
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  // Returns the news of the text. Once it fits no more, and no call has begun, it is content.
  std::vector<ChatDelta> read(bool is_last) {
    // A text may fit again when a mark at its end is complete, or turns out to be none.
    constexpr std::size_t kMostMarkBytes = 64;
    auto now = parse(false);
    if (now) {
      n_fitting = text.size();
      n_misfitting.reset();
      return take(*now, is_last);
    }
    now = parse(true);
    const bool has_calls = !message.tool_calls.empty() || (now && !now->tool_calls.empty());
    if (has_calls) return now ? take(*now, is_last) : std::vector<ChatDelta>();
    if (!n_misfitting) n_misfitting = text.size();
    if (!is_last && text.size() - *n_misfitting < kMostMarkBytes) return {};
    is_plain = true;
    return rest_from(n_read(text.substr(0, n_fitting)));
  }

  // Returns how many bytes a text that fits has up to the end of its thinking and content.
  std::size_t n_read(const std::string& fitting) const {
    if (is_too_deep(format->parameters.generation_prompt) || is_too_deep(fitting)) return 0;
    for (const common_chat_parser_params* one : {&format->parameters, format->apart ? &*format->apart : nullptr}) {
      if (one == nullptr || one->parser.empty()) continue;
      common_peg_parse_context context(one->generation_prompt + fitting, COMMON_PEG_PARSE_FLAG_LENIENT);
      const common_peg_parse_result result = one->parser.parse(context);
      if (result.fail()) continue;
      std::size_t end = one->generation_prompt.size();
      context.ast.visit(result, [&](const common_peg_ast_node& node) {
        const bool is_read =
            node.tag == common_chat_peg_builder::CONTENT || node.tag == common_chat_peg_builder::REASONING;
        if (is_read) end = std::max(end, node.end);
      });
      return end - one->generation_prompt.size();
    }
    return fitting.size();
  }

  // Returns the text from there on as content.
  std::vector<ChatDelta> rest_from(std::size_t begin) {
    if (begin >= text.size()) return {};
    message.content += text.substr(begin);
    return {{.content = text.substr(begin)}};
  }

  std::vector<ChatDelta> take(const common_chat_msg& now, bool is_last) {
    std::vector<ChatDelta> deltas;
    // With thinking in the text, a call's header may look like content until it is complete.
    const bool is_held = format->apart && !is_last;
    ChatDelta text_delta{
        .reasoning = added(begun_reasoning + message.reasoning, now.reasoning_content),
        .content = added(begun_content + message.content, is_held ? without_open_header(now.content) : now.content)};
    message.reasoning += text_delta.reasoning;
    message.content += text_delta.content;
    if (!text_delta.reasoning.empty() || !text_delta.content.empty()) deltas.push_back(std::move(text_delta));
    for (std::size_t i = 0; i < now.tool_calls.size(); ++i) {
      const common_chat_tool_call& call = now.tool_calls[i];
      // The name may still be growing until something follows it.
      const bool is_named = is_last || i + 1 < now.tool_calls.size() || !call.arguments.empty();
      if (call.name.empty() || !is_named) break;
      ChatDelta delta{.tool_call = static_cast<int>(i)};
      if (i == message.tool_calls.size()) {
        message.tool_calls.push_back({call.id.empty() ? random_call_id() : call.id, call.name, ""});
        delta.id = message.tool_calls.back().id;
        delta.name = call.name;
      }
      ChatToolCall& kept = message.tool_calls[i];
      delta.arguments = added(kept.arguments, call.arguments);
      kept.arguments += delta.arguments;
      if (!delta.name.empty() || !delta.arguments.empty()) deltas.push_back(std::move(delta));
    }
    return deltas;
  }
};

ChatReader::ChatReader(std::shared_ptr<const ChatFormat> format) : impl_(std::make_unique<Impl>()) {
  impl_->message.role = "assistant";
  impl_->format = std::move(format);
  if (impl_->format == nullptr || !impl_->format->parameters.is_continuation) return;
  const auto before = impl_->parse(true);
  if (!before) return;
  // A call that was begun is reported whole, since its rest alone says nothing.
  impl_->begun_reasoning = before->reasoning_content;
  impl_->begun_content = before->content;
}
ChatReader::~ChatReader() = default;
ChatReader::ChatReader(ChatReader&&) noexcept = default;
ChatReader& ChatReader::operator=(ChatReader&&) noexcept = default;

std::vector<ChatDelta> ChatReader::add(std::string_view text) {
  impl_->text += text;
  if (impl_->format == nullptr || impl_->is_plain) return impl_->rest_from(impl_->text.size() - text.size());
  return impl_->read(false);
}

// libllama-common's parsers read whole answers and those that were cut off alike.
std::vector<ChatDelta> ChatReader::finish() {
  if (impl_->format == nullptr || impl_->is_plain) return {};
  std::vector<ChatDelta> deltas = impl_->read(true);
  if (impl_->is_plain || !impl_->message.tool_calls.empty()) return deltas;
  // A call that no mark announces begins as other text may: what has not become one is content.
  const std::size_t n_read = impl_->n_read(impl_->text);
  const std::size_t begin = impl_->text.find_first_not_of(" \n", n_read);
  if (begin == std::string::npos || impl_->text[begin] != '{') return deltas;
  for (ChatDelta& delta : impl_->rest_from(n_read)) deltas.push_back(std::move(delta));
  return deltas;
}

const ChatMessage& ChatReader::message() const { return impl_->message; }

}  // namespace winnow
