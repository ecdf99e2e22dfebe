// The content of a text file as a text, the same whatever system wrote it.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

// `bytes` without a byte order mark and with lines that end in "\n" alone ("\r\n" and "\r" become that, as Python reads
// text). `name`: of the file, for the error. Throws Error(kBadFile) with the first byte that is not UTF-8, counted from
// 0.
std::string running_text(std::string_view bytes, std::string_view name);

// The same for a text that is known to be UTF-8: line ends only.
std::string with_plain_line_ends(std::string_view text);

}  // namespace winnow
