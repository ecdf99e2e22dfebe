// The page at "/": the files of page/, which are built into the program.
#pragma once

namespace winnow::server {

extern const char* const kPage;

}  // namespace winnow::server
