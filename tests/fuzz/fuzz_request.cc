// Bodies of requests in every dialect, up to the request for the batch, grammars included. The first byte chooses the
// route.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "server/body_json.h"
#include "server/dialects/anthropic_dialect.h"
#include "server/dialects/llama_dialect.h"
#include "server/dialects/llama_json.h"
#include "server/dialects/ollama_dialect.h"
#include "server/dialects/ollama_request.h"
#include "server/dialects/openai_dialect.h"
#include "server/dialects/responses_dialect.h"
#include "server/embeddings.h"
#include "winnow/sampling.h"

using namespace winnow;          // NOLINT(google-build-using-namespace)
using namespace winnow::server;  // NOLINT(google-build-using-namespace)

namespace {

struct Route {
  const char* path;
  std::function<void(const std::string& body, const Model& model)> take;
};

// Returns a route that makes the batch request of a dialect and parses its grammar.
template <class Make>
Route asking(const char* path, Make make) {
  return {path, [make](const std::string& body, const Model& model) {
            const ApiRequest request = make()->parse(parse_body(body), model, {});
            if (request.batch.sampling.grammar.empty()) return;
            Sampler(std::shared_ptr<const Model>(std::shared_ptr<void>(), &model), request.batch.sampling);
          }};
}

std::vector<Route> routes() {
  const auto store = std::make_shared<ResponseStore>();
  store->put({.id = "resp_1", .messages = R"([{"role":"user","content":"x"}])", .response = "{}"});
  const auto openai = [](Endpoint endpoint) {
    return [endpoint] { return std::make_unique<OpenAiDialect>(endpoint, "m"); };
  };
  const auto ollama = [](OllamaDialect::Kind kind) {
    return [kind] { return std::make_unique<OllamaDialect>(kind, "m"); };
  };
  const auto llama = [](LlamaDialect::Kind kind) {
    return [kind] { return std::make_unique<LlamaDialect>(kind, "m"); };
  };
  return {
      asking("/v1/chat/completions", openai(Endpoint::kChat)),
      asking("/v1/completions", openai(Endpoint::kCompletion)),
      asking("/v1/messages", [] { return std::make_unique<AnthropicDialect>("m"); }),
      asking("/v1/responses", [store] { return std::make_unique<ResponsesDialect>("m", store); }),
      asking("/api/chat", ollama(OllamaDialect::Kind::kChat)),
      asking("/api/generate", ollama(OllamaDialect::Kind::kGenerate)),
      asking("/completion", llama(LlamaDialect::Kind::kCompletion)),
      asking("/infill", llama(LlamaDialect::Kind::kInfill)),
      {"/apply-template",
       [](const std::string& body, const Model& model) { template_json(model, parse_body(body), {}); }},
      {"/v1/embeddings",
       [](const std::string& body, const Model& model) { parse_openai_embeddings(parse_body(body), model, {}); }},
      {"/api/embed",
       [](const std::string& body, const Model& model) { parse_ollama_embed(parse_body(body), model, {}); }},
      {"/api/embeddings",
       [](const std::string& body, const Model& model) { parse_ollama_embeddings(parse_body(body), model, {}); }},
  };
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<const Model> model = [] {
    return Model::load(test::TinyModel({.chat_template = test::kChatmlTemplate}).path());
  }();
  static const std::vector<Route> all = routes();
  if (size == 0) return 0;
  const Route& route = all[data[0] % all.size()];
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto tell = [&](const ApiError& error) {
    if (error.status != 400 && error.status != 404) __builtin_trap();
    to_text(error_body(route.path, error));
  };
  try {
    route.take(text, *model);
  } catch (const ApiError& error) {
    tell(error);
  } catch (const Error& error) {
    tell(api_error(error));
  }
  return 0;
}
