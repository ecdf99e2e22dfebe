// Registration of a program's own methods. A registered part is chosen by its name like a built-in one
// ("snapkv:scorer=mine", or a preset "mine"), in programs and in files, and gets the same evidence.
//
// Methods have to be registered at the start of the program, before other threads use winnow. A name has 1 to 64
// lower-case letters, digits, hyphens and plus signs. All functions throw Error(kInvalidArgument) for a name of another
// form or one that is taken, and for an option that another part declares differently.
#pragma once

#include <memory>
#include <string>

#include "winnow/api.h"
#include "winnow/eviction.h"
#include "winnow/head_allocator.h"
#include "winnow/layer_allocator.h"
#include "winnow/scorer.h"
#include "winnow/selector.h"

namespace WINNOW_API winnow {

// Each registers a part under a name, for the rest of the process.
void register_scorer(const std::string& name, std::unique_ptr<const Scorer> scorer);
void register_layer_allocator(const std::string& name, std::unique_ptr<const LayerAllocator> allocator);
void register_head_allocator(const std::string& name, std::unique_ptr<const HeadAllocator> allocator);
void register_selector(const std::string& name, std::unique_ptr<const Selector> selector);

// Registers a preset that stands for the method `text`, e.g. "snapkv:scorer=mine,sinks=4". `summary` and `paper` are
// those of MethodInfo. Throws what EvictionOptions::parse throws, too.
void register_method(const std::string& name, const std::string& text, const std::string& summary,
                     const std::string& paper = "-");

}  // namespace winnow
