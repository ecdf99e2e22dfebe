// The server's routes.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "server/body_json.h"
#include "server/dialects/anthropic_dialect.h"
#include "server/dialects/llama_dialect.h"
#include "server/dialects/llama_json.h"
#include "server/dialects/ollama_dialect.h"
#include "server/dialects/ollama_request.h"
#include "server/dialects/openai_dialect.h"
#include "server/dialects/responses_dialect.h"
#include "server/fields.h"
#include "server/kv_json.h"
#include "server/page.h"
#include "server/service.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

void set_json(httplib::Response& response, const Json& json) {
  response.set_content(to_text(json), "application/json");
}

// The page loads nothing but itself, and no site may put it into a frame.
void set_page(httplib::Response& response) {
  response.set_header("Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_content(kPage, "text/html; charset=utf-8");
}

}  // namespace

Json error_body(const std::string& path, const ApiError& error) {
  if (path.starts_with("/v1/messages")) return anthropic_error(error);
  if (path.starts_with("/api/")) return ollama_error(error);
  return error.body();
}

void Service::add_dialect_routes() {
  const std::string& name = options_.model_name;
  using Make = std::function<std::unique_ptr<Dialect>()>;
  const std::vector<std::pair<const char*, Make>> routes = {
      {"/v1/chat/completions", [&] { return std::make_unique<OpenAiDialect>(Endpoint::kChat, name); }},
      {"/v1/completions", [&] { return std::make_unique<OpenAiDialect>(Endpoint::kCompletion, name); }},
      // Clients whose base address lacks the /v1 use these.
      {"/chat/completions", [&] { return std::make_unique<OpenAiDialect>(Endpoint::kChat, name); }},
      {"/completions", [&] { return std::make_unique<OpenAiDialect>(Endpoint::kCompletion, name); }},
      {"/responses", [&] { return std::make_unique<ResponsesDialect>(name, responses_); }},
      {"/completion", [&] { return std::make_unique<LlamaDialect>(LlamaDialect::Kind::kCompletion, name); }},
      {"/infill", [&] { return std::make_unique<LlamaDialect>(LlamaDialect::Kind::kInfill, name); }},
      {"/v1/responses", [&] { return std::make_unique<ResponsesDialect>(name, responses_); }},
      {"/v1/messages", [&] { return std::make_unique<AnthropicDialect>(name); }},
  };
  for (const auto& [path, make] : routes) {
    post(path, [this, make = make](Batch& batch, const httplib::Request& request, httplib::Response& response) {
      generate(make(), batch, parse_body(request.body), response);
    });
  }
}

void Service::add_ollama_routes() {
  using Kind = OllamaDialect::Kind;
  for (const auto& [path, kind] : {std::pair("/api/chat", Kind::kChat), std::pair("/api/generate", Kind::kGenerate)}) {
    post(path, [this, kind = kind](Batch& batch, const httplib::Request& request, httplib::Response& response) {
      auto dialect = std::make_unique<OllamaDialect>(kind, options_.model_name);
      Json body = parse_body(request.body);
      if (is_ollama_load(body)) {
        set_json(response, dialect->nothing_said(is_ollama_unload(body) ? "unload" : "load"));
        return;
      }
      generate(std::move(dialect), batch, std::move(body), response);
    });
  }
  get("/api/version", [](Batch&, const httplib::Request&, httplib::Response& response) {
    // Clients check whether the version of the interface is new enough for them.
    set_json(response, {{"version", "0.12.6"}, {"winnow", kVersion}});
  });
  get("/api/tags", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    set_json(response, ollama_tags(*batch.engine()->model(), options_.model_name));
  });
  get("/api/ps", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    set_json(response, ollama_running(*batch.engine()->model(), options_.model_name));
  });
  post("/api/show", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    const Json body = parse_body(request.body);
    const Fields fields(body);
    const std::string name = fields.text("model").value_or(fields.text("name").value_or(""));
    if (ollama_name(name) != ollama_name(options_.model_name)) {
      throw ApiError(404, "model '" + name.substr(0, 256) + "' not found: /api/tags lists the models");
    }
    set_json(response, ollama_show(*batch.engine()->model()));
  });
}

void Service::add_response_routes() {
  const auto unknown = [] {
    return ApiError(404, "this response is unknown or no longer kept: only the last ones stay in memory",
                    "response_id");
  };
  for (const std::string before : {"/v1", ""}) {
    const std::string path = before + "/responses/([^/]+)";
    get(path, [this, unknown](Batch&, const httplib::Request& request, httplib::Response& response) {
      const auto found = responses_->find(request.matches[1].str());
      if (!found) throw unknown();
      response.set_content(found->response, "application/json");
    });
    http_.Delete(path, guarded([this, unknown](Batch&, const httplib::Request& request, httplib::Response& response) {
                   const std::string id = request.matches[1].str();
                   if (!responses_->remove(id)) throw unknown();
                   set_json(response, {{"id", id}, {"object", "response"}, {"deleted", true}});
                 }));
  }
}

void Service::add_embedding_routes() {
  const std::string& name = options_.model_name;
  for (const char* path : {"/v1/embeddings", "/embeddings"}) {
    embed(path, parse_openai_embeddings, [&name](const EmbeddingsRequest& request, const Embeddings& made) {
      return openai_embeddings(request, made, name);
    });
  }
  embed("/api/embed", parse_ollama_embed,
        [&name](const EmbeddingsRequest&, const Embeddings& made) { return ollama_embed(made, name); });
  embed("/api/embeddings", parse_ollama_embeddings,
        [](const EmbeddingsRequest&, const Embeddings& made) { return ollama_embeddings(made); });
}

void Service::add_routes() {
  add_dialect_routes();
  add_response_routes();
  add_ollama_routes();
  add_embedding_routes();
  http_.Get("/", [](const httplib::Request&, httplib::Response& response) { set_page(response); });
  http_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics_text(counts_, latencies_, batch_), "text/plain; version=0.0.4");
  });
  get("/health", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    if (is_leaving_) throw ApiError(503, "the server is shutting down", "", "stopping");
    if (batch.statistics().turn_s > options_.stall_s) {
      throw ApiError(503,
                     "the engine has made no progress for " + std::to_string(static_cast<int>(options_.stall_s)) +
                         " seconds: check the log and restart the server",
                     "", "stalled");
    }
    set_json(response, {{"status", "ok"}});
  });
  for (const std::string before : {"/v1", ""}) {
    get(before + "/models", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
      set_json(response,
               {{"object", "list"},
                {"data", Json::array({model_json(*batch.engine()->model(), options_.defaults, options_.model_name)})}});
    });
    get(before + "/models/(.+)", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
      if (request.matches[1].str() != options_.model_name) {
        throw ApiError(404,
                       "there is no model '" + valid_utf8(request.matches[1].str()) + "': /v1/models lists the models",
                       "", "model_not_found");
      }
      set_json(response, model_json(*batch.engine()->model(), options_.defaults, options_.model_name));
    });
  }
  get("/v1/kv", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    set_json(response, kv_json(batch, options_.defaults));
  });
  post("/v1/messages/count_tokens", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    const ApiRequest counted = AnthropicDialect(options_.model_name)
                                   .parse(parse_body(request.body), *batch.engine()->model(), options_.defaults);
    set_json(response, {{"input_tokens", counted.n_prompt_tokens()}});
  });
  get("/props", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    set_json(response, props_json(*batch.engine()->model(), options_.defaults, options_.model_name));
  });
  get("/slots", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    set_json(response, slots_json(batch, options_.defaults));
  });
  post("/apply-template", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    set_json(response, template_json(*batch.engine()->model(), parse_body(request.body), options_.defaults));
  });
  post("/tokenize", [](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    set_json(response, tokenize_json(*batch.engine()->model(), parse_body(request.body)));
  });
  post("/detokenize", [](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    set_json(response, detokenize_json(*batch.engine()->model(), parse_body(request.body)));
  });
}

}  // namespace winnow::server
