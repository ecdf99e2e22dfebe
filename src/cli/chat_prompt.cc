#include "cli/chat_prompt.h"

#include <vector>

#include "winnow/error.h"

namespace winnow::cli {
namespace {

// A word that none of the texts has, to find a place of the template again after rendering.
std::string marker_absent_from(const std::string& text) {
  std::string marker = "<winnow-marker>";
  while (text.find(marker) != std::string::npos) marker += '>';
  return marker;
}

SplitPrompt render_and_split(const Model& model, const std::vector<ChatMessage>& messages, const std::string& marker) {
  const std::string prompt = model.apply_chat_template(messages, true);
  const std::size_t place = prompt.find(marker);
  if (place == std::string::npos || prompt.find(marker, place + 1) != std::string::npos) {
    throw Error(ErrorCode::kUnsupported,
                "the model's chat template does not show a message exactly once: use `winnow run --no-chat`");
  }
  return {prompt.substr(0, place), prompt.substr(place + marker.size())};
}

}  // namespace

SplitPrompt render_first_turn(const Model& model, const std::string& system, const std::string& context,
                              const std::string& question) {
  const std::string marker = marker_absent_from(system + context + question);
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", context + marker + question});
  return render_and_split(model, messages, marker);
}

std::string render_later_turn(const Model& model, const std::string& message) {
  const std::string marker = marker_absent_from(message);
  return render_and_split(model, {{"user", "."}, {"assistant", marker}, {"user", message}}, marker).after;
}

}  // namespace winnow::cli
