// Embeddings of texts: the parts that /v1/embeddings, /api/embed and /api/embeddings share, and their JSON.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "server/api_request.h"

namespace winnow::server {

struct EmbeddingsRequest {
  std::vector<std::vector<Token>> inputs;  // empty if a request of ollama's has no text
  bool is_normalised = true;
  bool is_base64 = false;  // of float32, little-endian
};

struct Embeddings {
  std::vector<std::vector<float>> rows;  // [n_inputs][n_embd]
  std::int64_t n_tokens = 0;             // of all inputs
  double seconds = 0;
};

// Parse bodies of OpenAI's /v1/embeddings and of ollama's routes. Throw ApiError(400), and Error for texts that cannot
// be read.
EmbeddingsRequest parse_openai_embeddings(const Json& body, const Model& model, const RequestDefaults& defaults);
EmbeddingsRequest parse_ollama_embed(const Json& body, const Model& model, const RequestDefaults& defaults);
EmbeddingsRequest parse_ollama_embeddings(const Json& body, const Model& model, const RequestDefaults& defaults);

// Computes the embeddings. At most two inputs are in the batch at a time, so that a long list of them does not keep
// other requests waiting. Throws ApiError past the deadline, once the client is gone, and for a request that fails.
Embeddings compute_embeddings(Batch& batch, const EmbeddingsRequest& request, const RequestDefaults& defaults,
                              std::chrono::steady_clock::time_point deadline);

Json openai_embeddings(const EmbeddingsRequest& request, const Embeddings& made, const std::string& model_name);
Json ollama_embed(const Embeddings& made, const std::string& model_name);
Json ollama_embeddings(const Embeddings& made);

}  // namespace winnow::server
