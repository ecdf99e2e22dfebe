// The parts of a GGUF file, so that a fuzzer changes metadata and tensors instead of bytes, few of which readers use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace winnow::test {

// GGUF's value types.
enum GgufType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

struct GgufValue {
  std::string key;
  std::uint32_t type = 0;
  std::uint32_t element_type = 0;  // of an array
  std::uint64_t n_elements = 0;    // of an array, as the file states it
  std::string bytes;               // the value, or an array's elements
};

struct GgufTensor {
  std::string name;
  std::uint32_t n_dims = 0;  // as the file states it
  std::vector<std::uint64_t> dims;
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
};

struct GgufParts {
  std::uint32_t version = 3;
  std::vector<GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::optional<std::uint64_t> n_values, n_tensors;  // in the header, if it is to be wrong
  std::string data;
};

// Returns the parts of a complete file of version 3 with the usual alignment, 32.
GgufParts take_apart(const std::string& file);
std::string put_together(const GgufParts& parts);

struct HeadShape {
  std::uint32_t n_head;
  std::uint32_t n_kv_head;
  std::uint32_t head_dim;
};

// Gives a model other heads: metadata and tensors that fit together, made of the old numbers. Leaves the model as it is
// if that would take more than 16 MiB, or if a tensor is not one of a complete model.
void reshape(GgufParts& parts, const HeadShape& shape);

// Makes changes that the bytes of an input choose, one after the other until the bytes are used up.
void edit(GgufParts& parts, const std::uint8_t* data, std::size_t size);

}  // namespace winnow::test
