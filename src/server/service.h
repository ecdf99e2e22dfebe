// The server: its routes, from the first byte of a request to the last of its answer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "server/access.h"
#include "server/dialects/dialect.h"
#include "server/dialects/response_store.h"
#include "server/embeddings.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "winnow/batch.h"

namespace winnow::server {

struct ServiceOptions {
  AccessOptions access;
  ConnectionLimits limits;
  int max_connections = 128;
  RequestDefaults defaults;
  std::string model_name;
  double request_s = 600;  // from the arrival of a request to the end of its answer
  double ping_s = 30;      // seconds without news after which a stream sends a ping; 0: never
  double stall_s = 60;     // seconds of one turn of the engine above which /health reports it
  // Receives a line of the log: an object with "event" and what belongs to it. Called from any thread.
  std::function<void(const Json&)> log;
};

// The server, with its routes.
class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  int bind(const std::string& host, int port) { return http_.bind(host, port); }
  // Serves until stop(). Until set_batch() is called, the routes that need the model answer 503.
  void serve() { http_.serve(); }
  // The batch must outlive serve(), which returns after the last connection.
  void set_batch(Batch* batch) { batch_ = batch; }
  // From now on /health answers 503, so that proxies look elsewhere; requests are still taken.
  void announce_end() { is_leaving_ = true; }
  // Refuses new requests, waits up to `seconds` for those under way, then ends.
  void stop(double seconds);

  HttpServer& http() { return http_; }

 private:
  using Handler = std::function<void(Batch&, const httplib::Request&, httplib::Response&)>;
  void add_routes();  // these are in routes.cc
  void add_dialect_routes();
  void add_ollama_routes();
  void add_response_routes();
  void add_embedding_routes();
  void get(const std::string& path, const Handler& handler) { http_.Get(path, guarded(handler)); }
  void post(const std::string& path, const Handler& handler) { http_.Post(path, guarded(handler)); }
  httplib::Server::Handler guarded(const Handler& handler);
  void add_hooks();

  // Answers a request in a dialect.
  void generate(std::unique_ptr<Dialect> dialect, Batch& batch, Json body, httplib::Response& response);
  // Adds a route that answers with the embeddings of the texts that `parse` finds in the body, as `render` writes them.
  using ParseTexts = EmbeddingsRequest (*)(const Json& body, const Model&, const RequestDefaults&);
  using RenderVectors = std::function<Json(const EmbeddingsRequest&, const Embeddings&)>;
  void embed(const std::string& path, ParseTexts parse, const RenderVectors& render);
  void log(const Json& line) const;

  const ServiceOptions options_;
  HttpServer http_;
  std::atomic<Batch*> batch_{nullptr};
  std::atomic<bool> is_leaving_{false}, is_stopping_{false};
  StatusCounts counts_;
  Latencies latencies_;
  const std::shared_ptr<ResponseStore> responses_ = std::make_shared<ResponseStore>();
};

}  // namespace winnow::server
