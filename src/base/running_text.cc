#include "base/running_text.h"

#include "base/utf8.h"

namespace winnow {

std::string with_plain_line_ends(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      plain += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      plain += '\n';
    }
  }
  return plain;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string running_text(std::string_view bytes, std::string_view name) {
  check_utf8(bytes, "'" + std::string(name) + "'", ErrorCode::kBadFile);
  return with_plain_line_ends(without_byte_order_mark(bytes));
}

}  // namespace winnow
