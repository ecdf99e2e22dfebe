// Methods of one's own: a part that is registered under a name is then chosen by that name, like those that are built
// in ("snapkv:scorer=mine", a preset "mine"), by programs and in files, and gets the same evidence.
//
// Register at the start of the program, before other threads use winnow. Names are of lower-case letters, digits and
// hyphens. All throw Error(kInvalidArgument) for a name of another form or one that is taken, and for an option that
// another part declares otherwise.
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

void register_scorer(const std::string& name, std::unique_ptr<const Scorer> scorer);
void register_layer_allocator(const std::string& name, std::unique_ptr<const LayerAllocator> allocator);
void register_head_allocator(const std::string& name, std::unique_ptr<const HeadAllocator> allocator);
void register_selector(const std::string& name, std::unique_ptr<const Selector> selector);

// A preset: `text` is what it stands for, e.g. "snapkv:scorer=mine,sinks=4". Throws what EvictionOptions::parse throws,
// too.
void register_method(const std::string& name, const std::string& text, const std::string& summary,
                     const std::string& paper = "-");

}  // namespace winnow
