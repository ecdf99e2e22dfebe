#include "winnow/model.h"

#include <ggml.h>

#include <map>

#include "model/model_impl.h"
#include "winnow/error.h"

namespace winnow {
namespace {

ModelInfo describe(const GgufFile& file, const Architecture& architecture, const Hparams& h) {
  ModelInfo info{};
  info.architecture = std::string(architecture.name);
  info.name = file.find_string("general.name").value_or("");
  std::map<ggml_type, std::uint64_t> parameters_of_type;
  for (std::int64_t i = 0; i < file.n_tensors(); ++i) {
    const ggml_tensor* tensor = file.tensor(i);
    const auto n = static_cast<std::uint64_t>(ggml_nelements(tensor));
    info.n_parameters += n;
    parameters_of_type[tensor->type] += n;
  }
  std::uint64_t most = 0;
  for (const auto& [type, n] : parameters_of_type) {
    if (n <= most) continue;
    most = n;
    info.file_type = ggml_type_name(type);
  }
  info.bytes = file.tensor_bytes();
  info.n_layer = h.n_layer;
  info.n_head = h.n_head;
  info.n_kv_head = h.n_kv_head;
  info.head_dim = h.head_dim;
  info.n_embd = h.n_embd;
  info.n_ff = h.n_ff;
  info.n_vocab = h.n_vocab;
  info.n_ctx_train = h.n_ctx_train;
  info.sliding_window = h.sliding_window;
  info.fingerprint = file.fingerprint();
  return info;
}

}  // namespace

Model::Impl::Impl(const std::string& path, const ModelOptions& options)
    : file(path, options.use_mmap),
      architecture(find_architecture(file.string("general.architecture"))),
      hparams(read_hparams(file, architecture)),
      weights(load_weights(file, architecture, hparams)),
      tokenizer(path),
      info(describe(file, architecture, hparams)) {
  if (tokenizer.n_vocab() > hparams.n_vocab) {
    throw Error(ErrorCode::kBadFile, "'" + path + "': the tokenizer knows " + std::to_string(tokenizer.n_vocab()) +
                                         " tokens, the embeddings only " + std::to_string(hparams.n_vocab));
  }
}

std::shared_ptr<const Model> Model::load(const std::string& path, const ModelOptions& options) {
  return std::shared_ptr<const Model>(new Model(std::make_unique<Impl>(path, options)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ModelInfo& Model::info() const { return impl_->info; }

std::vector<Token> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  return impl_->tokenizer.tokenize(text, add_special, parse_special);
}
std::string Model::token_text(Token token, bool special) const { return impl_->tokenizer.token_text(token, special); }
std::string Model::detokenize(std::span<const Token> tokens) const { return impl_->tokenizer.detokenize(tokens); }
bool Model::is_end_of_generation(Token token) const { return impl_->tokenizer.is_end_of_generation(token); }
bool Model::has_chat_template() const { return impl_->tokenizer.has_chat_template(); }
std::string Model::apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant) const {
  return impl_->tokenizer.apply_chat_template(messages, add_assistant);
}

}  // namespace winnow
