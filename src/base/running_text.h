// The content of a text file, independent of the system that wrote it.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

// Returns `bytes` without a byte order mark and with lines that end in "\n" alone ("\r\n" and "\r" become "\n", as when
// Python reads text). `name` is the file's, for the error. Throws Error(kBadFile) with the position of the first byte
// that is not UTF-8, counted from 0.
std::string running_text(std::string_view bytes, std::string_view name);

// Returns a text without the byte order mark that some editors put before it.
std::string_view without_byte_order_mark(std::string_view text);

// Converts line ends only, for a text that is known to be UTF-8.
std::string with_plain_line_ends(std::string_view text);

}  // namespace winnow
