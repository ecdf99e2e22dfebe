#include "server/service.h"

#include "base/utf8.h"
#include "server/answer_json.h"
#include "server/answering.h"
#include "server/body_json.h"
#include "server/chat_prompt.h"

namespace winnow::server {
namespace {

void set_error(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
  response.status = error.status;
  if (error.retry_after_s > 0) response.set_header("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(to_text(error_body(request.path, error)), "application/json");
}

// Writes the body of an error that the library reports itself, which has none yet.
void explain_error(const httplib::Request& request, httplib::Response& response) {
  Connection* connection = HttpServer::current();
  const auto overflow = connection != nullptr ? connection->overflow() : Connection::Overflow::kNone;
  if (overflow == Connection::Overflow::kHeaders) response.status = 431;
  if (overflow == Connection::Overflow::kBody) response.status = 413;
  const bool is_librarys = response.body.empty();
  // The rest of a request that is not understood must not pass for another one.
  if (connection != nullptr && is_librarys && response.status == 400) connection->abandon_body();
  if (connection != nullptr && connection->is_spent() && request.get_header_value("Connection") != "close") {
    response.set_header("Connection", "close");
  }
  if (!is_librarys) return;
  std::string message = "this server does not understand the request";
  if (response.status == 404) message = "there is no " + request.method + " " + valid_utf8(request.path);
  if (response.status == 413) message = "the body is larger than this server accepts: send less, or raise --max-body";
  if (response.status == 431) message = "the request's headers are larger than this server accepts: send fewer";
  set_error(request, response, ApiError(response.status, message));
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
  http_.set_before_body([this](httplib::Request& request) {
    // The library takes at most 8 KiB of a form's type, which curl gives to every body.
    if (request.method == "POST" && is_sent_as_form(request)) request.headers.erase("Content-Type");
    return leaves_body_unread(request, options_.access);
  });
  http_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    const httplib::Headers headers = cors_headers(request, options_.access);
    for (const auto& [name, value] : headers) response.set_header(name, value);
    if (!headers.empty() && request.method == "OPTIONS" && may_ask(request, options_.access)) {
      response.status = 204;
      return httplib::Server::HandlerResponse::Handled;
    }
    const std::optional<ApiError> error = refusal(request, options_.access);
    if (!error) return httplib::Server::HandlerResponse::Unhandled;
    set_error(request, response, *error);
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
        ApiError error(503, is_stopping_ ? "the server is shutting down" : "the model is being loaded", "",
                       is_stopping_ ? "stopping" : "loading");
        error.retry_after_s = 5;
        throw error;
      }
      handler(*batch, request, response);
    } catch (const std::exception& error) {
      set_error(request, response, api_error(error));
    }
  };
}

void Service::generate(std::unique_ptr<Dialect> dialect, Batch& batch, Json body, httplib::Response& response) {
  const auto start = std::chrono::steady_clock::now();
  auto answering = std::make_shared<Answering>();
  answering->dialect = std::move(dialect);
  const Model& model = *batch.engine()->model();
  answering->request = answering->dialect->parse(std::move(body), model, options_.defaults);
  check_tokens(answering->request, options_.defaults.context_size(model));
  for (const std::string& text : answering->request.warnings) log({{"event", "warning"}, {"message", text}});
  answering->reader = std::make_unique<AnswerReader>(answering->request);
  answering->deadline = start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                    std::chrono::duration<double>(options_.request_s));
  answering->ping_s = options_.ping_s;
  answering->generation = std::make_unique<Generation>(batch, answering->request, options_.defaults.n_parallel + 1);
  answering->on_done = [this, start, id = answering->dialect->id()](const BatchResult& result) {
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

void Service::embed(const std::string& path, ParseTexts parse, const RenderVectors& render) {
  post(path, [this, parse, render](Batch& batch, const httplib::Request& request, httplib::Response& response) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                               std::chrono::duration<double>(options_.request_s));
    const EmbeddingsRequest texts = parse(parse_body(request.body), *batch.engine()->model(), options_.defaults);
    const Embeddings made = compute_embeddings(batch, texts, options_.defaults, deadline);
    log({{"event", "embeddings"}, {"n", made.rows.size()}, {"tokens", made.n_tokens}, {"ms", made.seconds * 1e3}});
    response.set_content(to_text(render(texts, made)), "application/json");
  });
}

void Service::stop(double seconds) {
  is_stopping_ = true;
  if (Batch* batch = batch_) batch->drain(seconds);
  http_.stop_serving();
}

}  // namespace winnow::server
