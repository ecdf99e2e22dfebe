// The export marker of the shared library: every public header's namespace carries WINNOW_API, and all other symbols
// are built hidden.
#pragma once

#define WINNOW_API [[gnu::visibility("default")]]
