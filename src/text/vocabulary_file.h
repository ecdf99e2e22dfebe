// The vocabulary of a model file as libllama reads it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "gguf/gguf_file.h"

struct llama_model;

namespace winnow {

// The layers that include this do not see llama.h.
struct VocabularyDeleter {
  void operator()(llama_model* model) const;
};

// The vocabulary and the metadata of a model, without its weights.
using Vocabulary = std::unique_ptr<llama_model, VocabularyDeleter>;

// Loads the vocabulary of a model's files, the first of which has the metadata, with changes to that; those that do not
// concern the tokenizer are passed over. `kind_of_words`: a pre-tokenizer in the place of the file's, "" for the
// file's. Throws Error(kBadFile) with libllama's reason, also for a file with which libllama would abort.
Vocabulary load_vocabulary(std::span<const std::string> paths, std::span<const MetadataChange> changes,
                           const std::string& kind_of_words = "");

// Returns the name of the model file's pre-tokenizer, or "default", libllama's, if it has none. Gemma 4's tokenizer has
// its own, whatever the file says.
std::string kind_of_words(const llama_model& model);

}  // namespace winnow
