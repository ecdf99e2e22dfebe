// The page at "/": the files of page/, put into the program when it is built.
#pragma once

namespace winnow::server {

extern const char* const kPage;

}  // namespace winnow::server
