// Adds tensors of random numbers to a model file that is being written.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "model/tiny_model.h"

namespace winnow::test {

// Holds the tensors until the file is written. Throws std::runtime_error for rows that a weight type cannot have.
class TensorWriter {
 public:
  TensorWriter(gguf_context* file, const TinyModelOptions& options)
      : file_(file), options_(options), random_(options.seed) {}

  // Adds normal values of variance gain^2 / n_in, so that outputs are as large as inputs times the gain.
  void matrix(const std::string& name, int n_in, int n_out, float gain = 1);
  // Adds one matrix for each expert.
  void expert_matrices(const std::string& name, int n_in, int n_out);
  // Adds one matrix for each of n heads.
  void matrices(const std::string& name, int n_in, int n_out, int n);
  // Adds a matrix of float32, whatever the type of the other weights is.
  void float_matrix(const std::string& name, int n_in, int n_out, float gain);
  void constants(const std::string& name, int n, int n_rows, float mean, float deviation);
  void vector(const std::string& name, int n, float mean, float deviation);

 private:
  ggml_tensor* make(ggml_type type, int n_in, int n_out, int n_matrices);
  ggml_tensor* values_of(int weight_type, int n_in, int n_out, int n_matrices, float gain);
  void add(const std::string& name, ggml_tensor* tensor);

  gguf_context* file_;
  const TinyModelOptions& options_;
  std::mt19937 random_;
  std::vector<ggml_context_ptr> tensors_;  // each in a context of its own
};

}  // namespace winnow::test
