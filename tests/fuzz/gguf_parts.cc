#include "fuzz/gguf_parts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace winnow::test {
namespace {

constexpr std::size_t kAlignment = 32;

std::size_t scalar_bytes(std::uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    default:
      return 8;
  }
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view take(std::size_t n) {
    if (n > file_.size() - at_) throw std::runtime_error("the seed is not a complete GGUF file");
    at_ += n;
    return std::string_view(file_).substr(at_ - n, n);
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  // Returns the bytes of a value, with the lengths of strings.
  std::string value(std::uint32_t type) {
    const std::size_t from = at_;
    if (type == kString) {
      text();
    } else {
      take(scalar_bytes(type));
    }
    return file_.substr(from, at_ - from);
  }
  std::size_t at() const { return at_; }

 private:
  const std::string& file_;
  std::size_t at_ = 0;
};

template <class T>
void put(std::string& file, T value) {
  file.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& file, const std::string& text) {
  put(file, std::uint64_t{text.size()});
  file += text;
}

void pad(std::string& file) { file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment, '\0'); }

// Returns the bytes of a tensor of a type that complete models have, or 0.
std::size_t tensor_bytes(const GgufTensor& tensor) {
  constexpr std::uint32_t kF32Type = 0, kF16Type = 1, kQ80Type = 8;
  if (tensor.dims.empty()) return 0;
  std::uint64_t n_rows = 1;
  for (std::size_t i = 1; i < tensor.dims.size(); ++i) n_rows *= tensor.dims[i];
  const std::uint64_t width = tensor.dims[0];
  if (width > 1 << 20 || n_rows > 1 << 20) return 0;
  if (tensor.type == kF32Type) return n_rows * width * 4;
  if (tensor.type == kF16Type) return n_rows * width * 2;
  if (tensor.type == kQ80Type && width % 32 == 0) return n_rows * width / 32 * 34;
  return 0;
}

// Keys that readers look for, and others that they might fail on.
const std::array kKeys = {"general.architecture",
                          "general.alignment",
                          "general.name",
                          "general.file_type",
                          "split.count",
                          "llama.rope.scaling.type",
                          "llama.rope.scaling.factor",
                          "llama.rope.scaling.attn_factor",
                          "llama.rope.scaling.original_context_length",
                          "llama.rope.scaling.yarn_beta_fast",
                          "llama.rope.scale_linear",
                          "llama.rope.dimension_count",
                          "llama.attention.sliding_window",
                          "llama.attention.head_count_kv",
                          "llama.attention.key_length",
                          "llama.expert_count",
                          "llama.vocab_size",
                          "llama.block_count",
                          "llama.embedding_length",
                          "llama.context_length",
                          "tokenizer.ggml.model",
                          "tokenizer.ggml.pre",
                          "tokenizer.ggml.merges",
                          "tokenizer.ggml.tokens",
                          "tokenizer.ggml.scores",
                          "tokenizer.ggml.token_type",
                          "tokenizer.ggml.token_type_count",
                          "tokenizer.ggml.precompiled_charsmap",
                          "tokenizer.ggml.add_bos_token",
                          "tokenizer.ggml.add_eos_token",
                          "tokenizer.ggml.add_sep_token",
                          "tokenizer.ggml.add_space_prefix",
                          "tokenizer.ggml.remove_extra_whitespaces",
                          "tokenizer.ggml.bos_token_id",
                          "tokenizer.ggml.eos_token_id",
                          "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.padding_token_id",
                          "tokenizer.ggml.seperator_token_id",
                          "tokenizer.ggml.unknown_token_id",
                          "tokenizer.ggml.fim_pre_token_id",
                          "tokenizer.chat_template",
                          "tokenizer.chat_templates",
                          "adapter.type"};
const std::array kTexts = {"llama",
                           "qwen2",
                           "qwen3",
                           "gemma",
                           "bert",
                           "t5",
                           "clip",
                           "gpt2",
                           "rwkv",
                           "wpm",
                           "bpe",
                           "ugm",
                           "plamo2",
                           "none",
                           "no_vocab",
                           "yarn",
                           "linear",
                           "longrope",
                           "default",
                           "llama-bpe",
                           "smollm",
                           "deepseek-llm",
                           "tekken",
                           "",
                           "a b",
                           "{{'<|im_start|>' + message['role']}}<|im_end|>",
                           "[INST]",
                           "blk.0.attn_q.weight",
                           "token_embd.weight",
                           "\xff\xfe",
                           "<0x0A>",
                           "</s>"};
constexpr std::array<std::uint64_t, 24> kNumbers = {0,
                                                    1,
                                                    2,
                                                    3,
                                                    7,
                                                    8,
                                                    16,
                                                    31,
                                                    32,
                                                    33,
                                                    64,
                                                    127,
                                                    128,
                                                    255,
                                                    256,
                                                    257,
                                                    65535,
                                                    0x7fffffff,
                                                    0x80000000,
                                                    0xffffffff,
                                                    0x100000000,
                                                    0x7fffffffffffffff,
                                                    0x8000000000000000,
                                                    0xffffffffffffffff};

class Editor {
 public:
  Editor(GgufParts& parts, const std::uint8_t* data, std::size_t size) : parts_(parts), data_(data), left_(size) {}

  void run() {
    while (left_ > 0 && !parts_.values.empty() && !parts_.tensors.empty()) step();
  }

 private:
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  std::uint64_t raw(int n) {
    std::uint64_t value = 0;
    while (n-- > 0) value = value << 8 | byte();
    return value;
  }
  // Returns one of kNumbers, or a number of 1, 4 or 8 bytes.
  std::uint64_t number() {
    const std::uint8_t kind = byte();
    if (kind < kNumbers.size()) return kNumbers[kind];
    return raw(kind % 3 == 0 ? 1 : kind % 3 == 1 ? 4 : 8);
  }
  std::string text() {
    const std::uint8_t kind = byte();
    if (kind < kTexts.size()) return kTexts[kind];
    std::string made;
    for (int n = kind % 24; n > 0; --n) made += static_cast<char>(byte());
    return made;
  }
  GgufValue& value() { return parts_.values[byte() % parts_.values.size()]; }
  GgufTensor& tensor() { return parts_.tensors[byte() % parts_.tensors.size()]; }

  std::string value_bytes(std::uint32_t type) {
    std::string bytes;
    if (type == kString) {
      put_text(bytes, text());
    } else {
      put(bytes, number());
      bytes.resize(scalar_bytes(type));
    }
    return bytes;
  }

  void set_array(GgufValue& to) {
    to.type = kArray;
    to.element_type = byte() % 13;
    to.n_elements = byte() % 64;
    to.bytes.clear();
    const std::string one = value_bytes(to.element_type);
    for (std::uint64_t i = 0; i < to.n_elements; ++i) to.bytes += (i % 4 == 3) ? value_bytes(to.element_type) : one;
  }

  // Overwrites some bytes in the middle.
  void patch(std::string& bytes) {
    if (bytes.empty()) return;
    const std::size_t at = raw(2) % bytes.size();
    for (std::size_t i = at, n = 1 + byte() % 8; n > 0 && i < bytes.size(); ++i, --n)
      bytes[i] = static_cast<char>(byte());
  }

  void step() {
    switch (byte() % 20) {
      case 0:
        parts_.values.erase(parts_.values.begin() + byte() % static_cast<int>(parts_.values.size()));
        break;
      case 1:
        parts_.values.push_back(GgufValue(value()));
        break;
      case 2:
        value().key = kKeys[byte() % kKeys.size()];
        break;
      case 3: {
        GgufValue& to = value();
        to.type = byte() % 14;
        if (to.type != kArray) to.bytes = value_bytes(to.type);
        break;
      }
      case 4: {
        GgufValue& to = value();
        if (to.type != kArray) to.bytes = value_bytes(to.type);
        break;
      }
      case 5:
        set_array(value());
        break;
      case 6:
        value().n_elements = number();
        break;
      case 7:
        value().element_type = byte() % 14;
        break;
      case 8:
        patch(value().bytes);
        break;
      case 9: {
        GgufValue made{.key = kKeys[byte() % kKeys.size()], .type = byte() % 13U};
        if (made.type == kArray) {
          set_array(made);
        } else {
          made.bytes = value_bytes(made.type);
        }
        parts_.values.push_back(made);
        break;
      }
      case 10:
        parts_.tensors.erase(parts_.tensors.begin() + byte() % static_cast<int>(parts_.tensors.size()));
        break;
      case 11:
        parts_.tensors.push_back(GgufTensor(tensor()));
        parts_.tensors.back().name = text();
        break;
      case 12:
        tensor().type = byte() % 48;
        break;
      case 13: {
        GgufTensor& to = tensor();
        if (!to.dims.empty()) to.dims[byte() % to.dims.size()] = number();
        break;
      }
      case 14: {
        GgufTensor& to = tensor();
        to.dims.resize(byte() % 6, 1);
        to.n_dims = static_cast<std::uint32_t>(to.dims.size());
        break;
      }
      case 15:
        tensor().offset = number();
        break;
      case 16:
        tensor().n_dims = static_cast<std::uint32_t>(number());
        break;
      case 17:
        (byte() % 2 == 0 ? parts_.n_values : parts_.n_tensors) = number();
        break;
      case 18:
        patch(parts_.data);
        break;
      default:
        if (byte() % 8 == 0) {
          parts_.version = static_cast<std::uint32_t>(number());
        } else {
          std::swap(tensor().name, tensor().name);
        }
        break;
    }
  }

  GgufParts& parts_;
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace

GgufParts take_apart(const std::string& file) {
  Reader reader(file);
  reader.take(4);
  GgufParts parts;
  parts.version = reader.number<std::uint32_t>();
  parts.tensors.resize(reader.number<std::uint64_t>());
  parts.values.resize(reader.number<std::uint64_t>());
  for (GgufValue& value : parts.values) {
    value.key = reader.text();
    value.type = reader.number<std::uint32_t>();
    if (value.type != kArray) {
      value.bytes = reader.value(value.type);
      continue;
    }
    value.element_type = reader.number<std::uint32_t>();
    value.n_elements = reader.number<std::uint64_t>();
    for (std::uint64_t i = 0; i < value.n_elements; ++i) value.bytes += reader.value(value.element_type);
  }
  for (GgufTensor& tensor : parts.tensors) {
    tensor.name = reader.text();
    tensor.n_dims = reader.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < tensor.n_dims; ++i) tensor.dims.push_back(reader.number<std::uint64_t>());
    tensor.type = reader.number<std::uint32_t>();
    tensor.offset = reader.number<std::uint64_t>();
  }
  reader.take((kAlignment - reader.at() % kAlignment) % kAlignment);
  parts.data = file.substr(reader.at());
  return parts;
}

std::string put_together(const GgufParts& parts) {
  std::string file = "GGUF";
  file.reserve(parts.data.size() + (std::size_t{64} << 10));
  put(file, parts.version);
  put(file, parts.n_tensors.value_or(parts.tensors.size()));
  put(file, parts.n_values.value_or(parts.values.size()));
  for (const GgufValue& value : parts.values) {
    put_text(file, value.key);
    put(file, value.type);
    if (value.type == kArray) {
      put(file, value.element_type);
      put(file, value.n_elements);
    }
    file += value.bytes;
  }
  for (const GgufTensor& tensor : parts.tensors) {
    put_text(file, tensor.name);
    put(file, tensor.n_dims);
    for (const std::uint64_t n : tensor.dims) put(file, n);
    put(file, tensor.type);
    put(file, tensor.offset);
  }
  pad(file);
  return file.append(parts.data);
}

void reshape(GgufParts& parts, const HeadShape& shape) {
  const std::uint64_t q_size = std::uint64_t{shape.n_head} * shape.head_dim;
  const std::uint64_t kv_size = std::uint64_t{shape.n_kv_head} * shape.head_dim;
  const auto new_dims = [&](const GgufTensor& tensor) -> std::vector<std::uint64_t> {
    const std::string& name = tensor.name;
    const std::vector<std::uint64_t>& dims = tensor.dims;
    const bool is_matrix = dims.size() == 2;
    if (name.ends_with("attn_q.weight") && is_matrix) return {dims[0], q_size};
    if (name.ends_with("attn_k.weight") && is_matrix) return {dims[0], kv_size};
    if (name.ends_with("attn_v.weight") && is_matrix) return {dims[0], kv_size};
    if (name.ends_with("attn_output.weight") && is_matrix) return {q_size, dims[1]};
    if (name.ends_with("attn_q.bias")) return {q_size};
    if (name.ends_with("attn_k.bias") || name.ends_with("attn_v.bias")) return {kv_size};
    if (name.ends_with("attn_q_norm.weight") || name.ends_with("attn_k_norm.weight")) return {shape.head_dim};
    if (name.ends_with("rope_freqs.weight")) return {shape.head_dim / 2};
    return dims;
  };

  GgufParts made = parts;
  made.data.clear();
  made.data.reserve(4 * parts.data.size());
  for (GgufTensor& tensor : made.tensors) {
    const std::size_t n_old = tensor_bytes(tensor);
    if (n_old == 0 || tensor.offset > parts.data.size() || n_old > parts.data.size() - tensor.offset) return;
    const std::string_view old = std::string_view(parts.data).substr(tensor.offset, n_old);
    tensor.dims = new_dims(tensor);
    const std::size_t n_new = tensor_bytes(tensor);
    if (n_new == 0 || made.data.size() + n_new > (std::size_t{16} << 20)) return;
    tensor.offset = made.data.size();
    for (std::size_t left = n_new; left > 0; left -= std::min(left, n_old)) made.data += old.substr(0, left);
    pad(made.data);
  }
  const std::array<std::pair<const char*, std::uint32_t>, 5> numbers = {{{".attention.head_count", shape.n_head},
                                                                         {".attention.head_count_kv", shape.n_kv_head},
                                                                         {".attention.key_length", shape.head_dim},
                                                                         {".attention.value_length", shape.head_dim},
                                                                         {".rope.dimension_count", shape.head_dim}}};
  for (GgufValue& value : made.values) {
    for (const auto& [key, number] : numbers) {
      if (!value.key.ends_with(key)) continue;
      value.type = kU32;
      value.bytes.clear();
      put(value.bytes, number);
    }
  }
  parts = std::move(made);
}

void edit(GgufParts& parts, const std::uint8_t* data, std::size_t size) { Editor(parts, data, size).run(); }

}  // namespace winnow::test
