// Lines that a person types on a terminal, with editing and history.
#pragma once

#include <memory>

#include "cli/chat_history.h"
#include "cli/line_input.h"

namespace winnow::cli {

// Returns the name of this build's line editor for --version: "libedit", or "" if it was built without.
const char* line_editor_name();

// Returns true if lines can be edited: the standard input and error are a terminal that can move its cursor, and this
// build has an editor.
bool can_edit_lines();

// Returns an editor; call it only if can_edit_lines(). Lines are remembered until the process ends, and in `history`
// unless it is null; `history` must outlive the editor.
std::unique_ptr<LineSource> make_line_editor(const ChatHistory* history);

}  // namespace winnow::cli
