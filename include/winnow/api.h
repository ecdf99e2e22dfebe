// What the shared library shows: the namespace of every public header carries this; all else is built hidden.
#pragma once

#define WINNOW_API [[gnu::visibility("default")]]
