// Chat templates cut at the places where winnow needs them cut.
#pragma once

#include <string>

#include "winnow/model.h"

namespace winnow::cli {

// A rendered prompt in two pieces: what is known (and may be compressed) before the question, and all that follows it
// up to where the assistant's answer begins.
struct SplitPrompt {
  std::string before;
  std::string after;
};

// One user message `context` + `question`, with a system message unless `system` is empty.
// Throws Error(kUnsupported) when the model has no template.
SplitPrompt render_first_turn(const Model& model, const std::string& system, const std::string& context,
                              const std::string& question);

// What follows an assistant's answer when the user speaks again: the answer's end mark, the message, the header of the
// next answer. It does not depend on what was said before.
std::string render_later_turn(const Model& model, const std::string& message);

}  // namespace winnow::cli
