#include "server/service.h"

#include "base/utf8.h"
#include "server/answering.h"
#include "server/fields.h"
#include "server/kv_json.h"
#include "server/page.h"

namespace winnow::server {
namespace {

constexpr const char* kJson = "application/json";

void set_error(httplib::Response& response, const ApiError& error) {
  response.status = error.status;
  if (error.retry_after_s > 0) response.set_header("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(to_text(error.body()), kJson);
}

// What the library refuses by itself has no body yet.
void explain_error(const httplib::Request& request, httplib::Response& response) {
  const Connection* connection = HttpServer::current();
  const auto overflow = connection != nullptr ? connection->overflow() : Connection::Overflow::kNone;
  if (overflow == Connection::Overflow::kHeaders) response.status = 431;
  if (overflow == Connection::Overflow::kBody) response.status = 413;
  if (!response.body.empty()) return;
  std::string message = "the request is not understood";
  if (response.status == 404) message = "there is no " + request.method + " " + valid_utf8(request.path);
  if (response.status == 413) message = "the body is larger than this server takes";
  if (response.status == 431) message = "the request's headers are larger than this server takes";
  set_error(response, ApiError(response.status, message));
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

Service::Service(ServiceOptions options)
    : options_(std::move(options)), http_(options_.limits, options_.max_connections) {
  add_hooks();
  add_routes();
}

Service::~Service() = default;

void Service::log(const Json& line) const {
  if (options_.log) options_.log(line);
}

void Service::add_hooks() {
  http_.set_default_headers({{"X-Content-Type-Options", "nosniff"}});
  http_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    const std::string& origin = options_.access.allowed_origin;
    if (!origin.empty()) {
      response.set_header("Access-Control-Allow-Origin", origin);
      response.set_header("Vary", "Origin");
    }
    if (!origin.empty() && request.method == "OPTIONS") {
      response.set_header("Access-Control-Allow-Methods", "GET, POST");
      response.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type");
      response.status = 204;
      return httplib::Server::HandlerResponse::Handled;
    }
    const std::optional<ApiError> error = refusal(request, options_.access);
    // Only a POST's body is read; what another request brings must not pass for the next request.
    Connection* connection = HttpServer::current();
    const bool has_body = request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
    if (connection != nullptr && (error || (request.method != "POST" && has_body))) connection->abandon_body();
    if (!error) return httplib::Server::HandlerResponse::Unhandled;
    set_error(response, *error);
    return httplib::Server::HandlerResponse::Handled;
  });
  http_.set_error_handler(httplib::Server::Handler(explain_error));
  http_.set_logger([this](const httplib::Request& request, const httplib::Response& response) {
    counts_.add(response.status);
    log({{"event", "request"},
         {"method", request.method},
         {"path", request.path},
         {"status", response.status},
         {"client", request.remote_addr}});
  });
}

httplib::Server::Handler Service::guarded(const Handler& handler) {
  return [this, handler](const httplib::Request& request, httplib::Response& response) {
    try {
      Batch* batch = batch_;
      if (batch == nullptr || is_stopping_) {
        ApiError error(503, is_stopping_ ? "the server is about to end" : "the model is being loaded", "",
                       is_stopping_ ? "stopping" : "loading");
        error.retry_after_s = 5;
        throw error;
      }
      handler(*batch, request, response);
    } catch (const ApiError& error) {
      set_error(response, error);
    } catch (const Error& error) {
      set_error(response, api_error(error));
    } catch (const std::bad_alloc&) {
      set_error(response, ApiError(503, "there is no memory left for this request"));
    } catch (const std::exception& error) {
      set_error(response, ApiError(500, error.what()));
    }
  };
}

void Service::get(const std::string& path, const Handler& handler) { http_.Get(path, guarded(handler)); }
void Service::post(const std::string& path, const Handler& handler) { http_.Post(path, guarded(handler)); }

void Service::add_routes() {
  http_.Get("/", [](const httplib::Request&, httplib::Response& response) { set_page(response); });
  http_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics_text(counts_, latencies_, batch_), "text/plain; version=0.0.4");
  });
  get("/health", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    if (batch.statistics().turn_s > options_.stall_s) {
      throw ApiError(503,
                     "the engine has stood still for " + std::to_string(static_cast<int>(options_.stall_s)) +
                         " seconds: look at the log, and start the server again",
                     "", "stalled");
    }
    response.set_content(R"({"status":"ok"})", kJson);
  });
  get("/v1/models", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    const Json models = {{"object", "list"},
                         {"data", Json::array({model_json(*batch.engine()->model(), options_.model_name)})}};
    response.set_content(to_text(models), kJson);
  });
  get("/v1/models/(.+)", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    if (request.matches[1].str() != options_.model_name) {
      throw ApiError(404,
                     "there is no model '" + valid_utf8(request.matches[1].str()) + "': /v1/models lists what there is",
                     "", "model_not_found");
    }
    response.set_content(to_text(model_json(*batch.engine()->model(), options_.model_name)), kJson);
  });
  get("/v1/kv", [this](Batch& batch, const httplib::Request&, httplib::Response& response) {
    response.set_content(to_text(kv_json(batch, options_.defaults)), kJson);
  });
  post("/v1/chat/completions", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    generate(Endpoint::kChat, batch, request, response);
  });
  post("/v1/completions", [this](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    generate(Endpoint::kCompletion, batch, request, response);
  });
  post("/tokenize", [](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    response.set_content(to_text(tokenize_json(*batch.engine()->model(), parse_body(request.body))), kJson);
  });
  post("/detokenize", [](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    response.set_content(to_text(detokenize_json(*batch.engine()->model(), parse_body(request.body))), kJson);
  });
}

void Service::generate(Endpoint endpoint, Batch& batch, const httplib::Request& request, httplib::Response& response) {
  const auto start = std::chrono::steady_clock::now();
  const Model& model = *batch.engine()->model();
  auto answering = std::make_shared<Answering>();
  answering->request = parse_request(endpoint, request.body, model, options_.defaults);
  answering->json = std::make_unique<AnswerJson>(answering->request, model, options_.model_name);
  answering->deadline = start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                    std::chrono::duration<double>(options_.request_s));
  answering->generation = std::make_unique<Generation>(batch, answering->request);
  answering->on_done = [this, start, id = answering->json->id()](const BatchResult& result) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    latencies_.add(result, seconds.count());
    Json line = {{"event", "answer"},
                 {"id", id},
                 {"ms", seconds.count() * 1e3},
                 {"usage", usage_json(result)},
                 {"timings", timings_json(result)}};
    if (!result.error.empty()) line["error"] = result.error;
    log(line);
  };
  if (answering->request.is_streamed) {
    answer_as_stream(std::move(answering), response);
  } else {
    answer_at_once(*answering, response);
  }
}

void Service::stop(double seconds) {
  is_stopping_ = true;
  if (Batch* batch = batch_) batch->drain(seconds);
  http_.stop_serving();
}

}  // namespace winnow::server
