#include "cli/text_file.h"

#include "base/running_text.h"

namespace winnow::cli {

void drop_newline(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
}

std::string read_text_file(const std::string& path, const InputKind& kind) {
  const std::string bytes = read_input(path, kind);
  std::string text(without_byte_order_mark(bytes));
  drop_newline(text);
  return text;
}

std::string read_running_text(const std::string& path) {
  std::string text = running_text(read_input(path, input::kText), path);
  drop_newline(text);
  return text;
}

}  // namespace winnow::cli
