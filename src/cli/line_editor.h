// Lines that a person types on a terminal, with editing and history.
#pragma once

#include <memory>

#include "cli/chat_history.h"
#include "cli/line_input.h"

namespace winnow::cli {

// What this build edits lines with, for --version: "libedit", or "" where it was built without.
const char* line_editor_name();

// Whether lines can be edited: the standard input and error are a terminal that can move its cursor, and this build has
// an editor.
bool can_edit_lines();

// For where they can. Lines are remembered until the process ends, and in `history` unless it is null; it must live
// longer.
std::unique_ptr<LineSource> make_line_editor(const ChatHistory* history);

}  // namespace winnow::cli
