// The models that `make model` knows by name: scripts/models.txt as it was when the tool was built, the default one
// first.
#pragma once

#include <span>

namespace winnow::cli {

struct NamedModel {
  const char* name;
  const char* file;  // in models/
};

std::span<const NamedModel> named_models();

}  // namespace winnow::cli
