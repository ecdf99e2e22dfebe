// A build without libedit: the terminal's own line editing is used.
#include "cli/line_editor.h"

namespace winnow::cli {

const char* line_editor_name() { return ""; }

bool can_edit_lines() { return false; }

std::unique_ptr<LineSource> make_line_editor(const ChatHistory*) { return nullptr; }

}  // namespace winnow::cli
