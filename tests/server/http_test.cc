// The API over HTTP: responses, streams, errors, cancellation, shutdown.
#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <new>
#include <set>
#include <sstream>

#include "server/answering.h"
#include "server/body_json.h"
#include "server/dialects/openai_dialect.h"
#include "server/http_test_support.h"

namespace winnow::server {
namespace {

// Returns the objects of a stream, with [DONE] as a string.
std::vector<Json> events(const std::string& body) {
  std::vector<Json> all;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos; ++at) {
    const std::string data = body.substr(at + 6, body.find("\n\n", at) - at - 6);
    all.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
  }
  return all;
}

TEST_F(HttpTest, HealthAndModelsAndTokens) {
  start();
  EXPECT_EQ(client().Get("/health")->status, 200);
  const Json models = Json::parse(client().Get("/v1/models")->body);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  const Json tokens = Json::parse(post("/tokenize", R"({"content":"the hat"})")->body);
  const Json text = Json::parse(post("/detokenize", tokens.dump())->body);
  EXPECT_EQ(text["content"], "the hat");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[300]})")->status, 400);
  EXPECT_EQ(post("/tokenize", R"({"content":7})")->status, 400);
  EXPECT_NE(client().Get("/metrics")->body.find("winnow_ready 1"), std::string::npos);
  EXPECT_NE(client().Get("/")->body.find("<!doctype html>"), std::string::npos);
  EXPECT_NE(client().Get("/")->get_header_value("Content-Security-Policy"), "");
}

TEST_F(HttpTest, HealthNoticesAnEngineThatStandsStill) {
  start([](ServiceOptions& options) { options.stall_s = 0.2; });
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  BatchRequest request{.prompt = model_->tokenize("the hat", true, true), .max_tokens = 2, .ignore_end = true};
  batch_->submit(request, {.on_token = [may_go_on](const BatchToken&) {
                   may_go_on.wait();
                   return true;
                 }});
  wait_until([&] { return client().Get("/health")->status == 503; });
  EXPECT_EQ(Json::parse(client().Get("/health")->body)["error"]["code"], "stalled");
  go_on.set_value();
  wait_until([&] { return client().Get("/health")->status == 200; });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // an idle server is not stalled
  EXPECT_EQ(client().Get("/health")->status, 200);
}

TEST_F(HttpTest, ModelsAreFoundByTheirNames) {
  start();
  EXPECT_EQ(Json::parse(client().Get("/v1/models/tiny")->body)["id"], "tiny");
  const auto missing = client().Get("/v1/models/other/one");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(Json::parse(missing->body)["error"]["code"], "model_not_found");
}

// Every family occurs once, its samples follow its type, and histograms add up.
TEST_F(HttpTest, MetricsAreInPrometheusFormat) {
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post("/v1/completions", completion(5))->status, 200);
  std::istringstream lines(client().Get("/metrics")->body);
  std::set<std::string> families;
  std::map<std::string, double> values;
  std::string family, type;
  double last_bucket = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "#" && second == "TYPE") {
      family = third;
      words >> type;
      // The name without the suffix that OpenMetrics adds to counters.
      const std::string bare = family.ends_with("_total") ? family.substr(0, family.size() - 6) : family;
      EXPECT_TRUE(families.insert(bare).second) << line;
      EXPECT_EQ(type == "counter", family.ends_with("_total")) << line;
      last_bucket = 0;
    }
    if (first == "#") continue;
    const std::string name = first.substr(0, first.find('{'));
    const bool is_histogram = type == "histogram";
    EXPECT_TRUE(is_histogram ? name == family + "_bucket" || name == family + "_sum" || name == family + "_count"
                             : name == family)
        << line;
    values[first] = std::stod(second);
    if (name != family + "_bucket") continue;
    EXPECT_GE(values[first], last_bucket) << line;
    last_bucket = values[first];
  }
  for (const std::string name : {"request_duration_seconds", "time_to_first_token_seconds", "time_per_token_seconds"}) {
    EXPECT_EQ(values["winnow_" + name + "_count"], 3) << name;
    EXPECT_EQ(values["winnow_" + name + "_bucket{le=\"+Inf\"}"], 3) << name;
    EXPECT_GT(values["winnow_" + name + "_sum"], 0) << name;
  }
  EXPECT_TRUE(values.contains("winnow_active_requests{state=\"queued\"}"));
}

TEST_F(HttpTest, WhatIsTooLongIsRefusedBeforeItIsRead) {
  start();
  EXPECT_EQ(post("/tokenize", R"({"content":")" + std::string((1 << 20) + 1, 'x') + "\"}")->status, 400);
  const auto expect_full = [&](const std::string& path, const std::string& body) {
    const auto response = post(path, body);
    EXPECT_EQ(response->status, 400);
    EXPECT_EQ(Json::parse(response->body)["error"]["code"], "context_length_exceeded") << response->body.substr(0, 300);
  };
  expect_full("/v1/completions", R"({"prompt":")" + std::string(4 << 20, 'x') + "\"}");
  std::string chat = R"({"messages":[{"role":"user","content":"x"})";
  for (int i = 0; i < 5000; ++i) chat += R"(,{"role":"user","content":""})";
  expect_full("/v1/chat/completions", chat + "]}");
  // The word that marks the split must be longer than its longest occurrence in the messages.
  expect_full("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"<winnow-split)" + std::string(8 << 20, '>') + "\"}]}");
}

TEST_F(HttpTest, NothingIsServedBeforeTheModelIsThere) {
  start();
  service_->set_batch(nullptr);
  const auto health = client().Get("/health");
  EXPECT_EQ(health->status, 503);
  EXPECT_EQ(health->get_header_value("Retry-After"), "5");
  EXPECT_EQ(Json::parse(health->body)["error"]["code"], "loading");
  EXPECT_EQ(post("/v1/completions", completion(3))->status, 503);
  service_->set_batch(batch_.get());
  EXPECT_EQ(post("/v1/completions", completion(3))->status, 200);
}

TEST_F(HttpTest, CompletionsHaveOpenAisShape) {
  start();
  const auto response = post("/v1/completions", completion(6, R"(,"logprobs":3,"n":2,"model":"other")"));
  ASSERT_EQ(response->status, 200) << response->body;
  const Json answer = Json::parse(response->body);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "other");
  ASSERT_EQ(answer["choices"].size(), 2U);
  EXPECT_EQ(answer["choices"][0]["text"], answer["choices"][1]["text"]);  // greedy
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), 6U);
  EXPECT_EQ(answer["choices"][0]["logprobs"]["top_logprobs"].size(), 6U);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  EXPECT_EQ(answer["usage"]["total_tokens"], 12 + answer["usage"]["prompt_tokens"].get<int>());
  EXPECT_EQ(answer["timings"]["kv"]["method"], "full");
}

// Clients find a token's probability by its text, and lm-eval calls a token greedy if no other one has a higher.
TEST_F(HttpTest, TokensThatArePartsOfCharactersHaveNamesOfTheirOwn) {
  start();
  constexpr std::size_t kAnswered = 40;
  const Json answer = answer_to(
      "/v1/completions",
      {{"prompt", "\U0001F389"}, {"echo", true}, {"logprobs", 5}, {"max_tokens", kAnswered}, {"ignore_eos", true}});
  const Json& logprobs = answer["choices"][0]["logprobs"];
  const Json& tokens = logprobs["tokens"];
  for (const char* name : {"bytes:\\xf0", "bytes:\\x9f", "bytes:\\x8e", "bytes:\\x89"}) {
    EXPECT_NE(std::find(tokens.begin(), tokens.end(), Json(name)), tokens.end()) << name << tokens;
  }
  ASSERT_GT(tokens.size(), kAnswered);
  for (std::size_t i = tokens.size() - kAnswered; i < tokens.size(); ++i) {
    const std::string name = tokens[i];
    const Json& top = logprobs["top_logprobs"][i];
    ASSERT_TRUE(top.contains(name)) << name << top;
    EXPECT_EQ(top[name], logprobs["token_logprobs"][i]) << name << top;
  }
}

TEST_F(HttpTest, StreamsSayWhatWholeAnswersSay) {
  start();
  const std::string messages = R"({"messages":[{"role":"user","content":"the hat"}],"ignore_eos":true,"max_tokens":20)";
  const Json whole =
      Json::parse(post("/v1/chat/completions", messages + R"(,"logprobs":true,"top_logprobs":2})")->body);
  const auto response = post("/v1/chat/completions", messages + R"(,"logprobs":true,"top_logprobs":2,"stream":true,
      "stream_options":{"include_usage":true}})");
  EXPECT_EQ(response->get_header_value("Content-Type"), "text/event-stream");
  const std::vector<Json> all = events(response->body);
  ASSERT_GE(all.size(), 4U);
  EXPECT_EQ(all[0]["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  Json probabilities = Json::array();
  for (std::size_t i = 1; i + 3 < all.size(); ++i) {
    text += all[i]["choices"][0]["delta"].value("content", "");
    if (!all[i]["choices"][0]["logprobs"].is_null()) {
      for (const Json& one : all[i]["choices"][0]["logprobs"]["content"]) probabilities.push_back(one);
    }
  }
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
  EXPECT_EQ(probabilities, whole["choices"][0]["logprobs"]["content"]);
  EXPECT_EQ(probabilities.size(), 20U);
  EXPECT_EQ(all[all.size() - 3]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(all[all.size() - 2]["choices"].empty());
  EXPECT_EQ(all[all.size() - 2]["usage"], whole["usage"]);
  EXPECT_EQ(all.back(), "[DONE]");
}

TEST_F(HttpTest, AStreamToAClientOfHttp10EndsWithItsConnection) {
  start();
  const std::string body = completion(5, R"(,"stream":true)");
  for (const std::string more : {"", "Connection: Keep-Alive\r\n"}) {
    const int fd = open_connection();
    send_all(fd, "POST /v1/completions HTTP/1.0\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
                     "\r\n\r\n" + body);
    const std::string answer = read_all(fd);
    char byte = 0;
    EXPECT_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), 0) << "the connection stays open";
    close(fd);
    EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos) << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
    EXPECT_NE(answer.find("\r\n\r\ndata: {"), std::string::npos) << answer;
    EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n")) << answer;
  }
}

TEST_F(HttpTest, StopSequencesEndTheAnswer) {
  start();
  const std::string text = Json::parse(post("/v1/completions", completion(30))->body)["choices"][0]["text"];
  // The stop sequence is from the middle of the answer and consists of whole characters.
  std::size_t begin = text.size() / 2;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0x80) != 0) --begin;
  std::size_t end = begin + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  const std::string stop = text.substr(begin, end - begin);
  const Json answer = Json::parse(post("/v1/completions", completion(30, ",\"stop\":" + Json(stop).dump()))->body);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["text"], text.substr(0, text.find(stop)));
}

TEST_F(HttpTest, SchemasBindTheAnswer) {
  start();
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":["x","y"]}},
      "required":["a","b"],"additionalProperties":false})";
  const auto response = post("/v1/chat/completions",
                             R"({"messages":[{"role":"user","content":"x"}],"max_tokens":200,"temperature":1,"seed":1,
      "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" +
                                 schema + "}}}");
  ASSERT_EQ(response->status, 200) << response->body;
  const std::string text = Json::parse(response->body)["choices"][0]["message"]["content"];
  const Json object = Json::parse(text);
  EXPECT_TRUE(object["a"].is_boolean()) << text;
  EXPECT_TRUE(object["b"] == "x" || object["b"] == "y") << text;
}

// Such grammars once stopped the server for hours.
TEST_F(HttpTest, GrammarsThatAreFollowedInManyWays) {
  start();
  const auto ask = [&](const std::string& grammar) {
    return post("/v1/completions", completion(200, R"(,"temperature":0,"grammar":)" + Json(grammar).dump()));
  };
  EXPECT_EQ(ask("root ::= (\"a\"?){900} (\"a\"){900}")->status, 200);
  EXPECT_EQ(ask("root ::= (((\"a\"?){12}){12}){12}")->status, 200);
  const auto refused = ask("root ::= \"a\" root \"b\" | \"a\" root \"c\"");
  EXPECT_EQ(refused->status, 400);
  EXPECT_NE(refused->body.find("too many ways"), std::string::npos) << refused->body;
  EXPECT_EQ(post("/v1/completions", completion(5))->status, 200);
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, 0U);
}

TEST_F(HttpTest, ContextsAreSharedAndShown) {
  BatchOptions options;
  options.context_bytes = std::size_t{8} << 20;
  start({}, options);
  std::string document;
  for (int i = 0; i < 80; ++i) document += "the hat ";
  const auto ask = [&](const std::string& question) {
    const auto response =
        post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + question +
                                         R"("}],"ignore_eos":true,"max_tokens":4,"kv":{"context":")" + document +
                                         R"(","evict":"snapkv:window=8","budget":"25%","heads":true}})");
    EXPECT_EQ(response->status, 200) << response->body;
    return Json::parse(response->body);
  };
  EXPECT_EQ(ask("one")["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const Json second = ask("two");
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"], 80);
  EXPECT_LT(second["timings"]["kv"]["entries_kept"], second["timings"]["kv"]["entries_full"].get<int>() / 2);
  int n_kept = 0;
  for (const Json& layer : second["timings"]["kv"]["kept"]) {
    EXPECT_EQ(layer.size(), 2U);  // heads
    for (const Json& n : layer) n_kept += n.get<int>();
  }
  EXPECT_EQ(second["timings"]["kv"]["entries_kept"], n_kept);
  const Json kv = Json::parse(client().Get("/v1/kv")->body);
  // The context is followed by two prompts with their answers.
  ASSERT_EQ(kv["contexts"].size(), 5U);
  EXPECT_EQ(kv["contexts"][0]["kind"], "context");
  EXPECT_EQ(kv["contexts"][0]["hits"], 1);
  EXPECT_EQ(kv["contexts"][1]["kind"], "conversation");
  EXPECT_EQ(kv["contexts"][1]["parent"], kv["contexts"][0]["id"]);
  EXPECT_EQ(kv["contexts"][0]["kept"].size(), 3U);  // layers
  EXPECT_EQ(kv["bytes_in_use"], kv["bytes_contexts"]);
}

TEST_F(HttpTest, BudgetsOfALossSayWhatTheyTook) {
  BatchOptions options;
  options.context_bytes = std::size_t{8} << 20;
  start({}, options);
  std::string document;
  for (int i = 0; i < 80; ++i) document += "the hat ";
  const auto ask = [&](const std::string& budget) {
    return post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"one"}],"max_tokens":2,"kv":{"context":")" + document +
                    R"(","evict":"kvzip:window=8","budget":")" + budget + R"("}})");
  };
  const auto response = ask("kl=10");
  ASSERT_EQ(response->status, 200) << response->body;
  const Json kv = Json::parse(response->body)["timings"]["kv"];
  EXPECT_EQ(kv["budget"], "kl=10");
  EXPECT_EQ(kv["promise"]["budget"], kv["promise"]["tried"].back()["budget"]);
  EXPECT_LE(kv["promise"]["expected"], 10);
  EXPECT_EQ(Json::parse(client().Get("/v1/kv")->body)["contexts"][0]["promise"], kv["promise"]);
  EXPECT_EQ(ask("kl=0")->status, 400);
  const auto impossible = ask("kl=0.0001");
  EXPECT_EQ(impossible->status, 400) << impossible->body;
  EXPECT_NE(impossible->body.find("allow more"), std::string::npos) << impossible->body;
}

TEST_F(HttpTest, ErrorsHaveOpenAisShape) {
  start();
  const auto expect = [&](int status, const httplib::Result& response) {
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, status) << response->body;
    const Json error = Json::parse(response->body).at("error");
    EXPECT_TRUE(error.at("message").is_string() && error.at("type").is_string());
    EXPECT_TRUE(error.contains("param") && error.contains("code"));
  };
  expect(400, post("/v1/chat/completions", "{"));
  expect(400, post("/v1/chat/completions", "{}"));
  expect(400, post("/v1/completions",
                   R"({"prompt":"the hat and the cat","kv":{"evict":"snapkv:window=8,sinks=4","budget":"2"}})"));
  expect(404, client().Get("/v1/nothing"));
  expect(404, client().Get("/v1/completions"));
  expect(415, client().Post("/v1/completions", completion(3), "application/xml"));
  expect(415, client().Post("/v1/completions", {{"Content-Encoding", "gzip"}}, completion(3), "application/json"));
  const auto too_long = post("/v1/completions", R"({"prompt":")" + std::string(3000, 'x') + "\"}");
  expect(400, too_long);
  EXPECT_EQ(Json::parse(too_long->body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(Json::parse(too_long->body)["error"]["param"], "prompt");
  // A stream that cannot begin is an error, not an empty stream.
  expect(400, post("/v1/completions", R"({"prompt":"x","stream":true,"grammar":"root ::= ("})"));
}

// Agents know this error by the words of llama-server or Anthropic, and shorten the conversation then.
TEST_F(HttpTest, APromptThatIsTooLongIsRefusedInWordsThatAgentsKnow) {
  start();
  for (const std::size_t n : {std::size_t{3000}, std::size_t{4} << 20}) {  // counted in tokens, and in bytes
    const std::string text(n, 'x');
    const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
    for (const auto& [path, body, param] : std::vector<std::tuple<std::string, Json, Json>>{
             {"/v1/chat/completions", {{"messages", messages}}, "messages"},
             {"/v1/completions", {{"prompt", text}}, "prompt"},
             {"/v1/completions", {{"prompt", {"a", text}}}, "prompt"},
             {"/completion", {{"prompt", text}}, "prompt"},
             {"/v1/responses", {{"input", text}}, "input"},
             {"/v1/embeddings", {{"input", text}}, "input"}}) {
      const auto response = post(path, body.dump());
      EXPECT_EQ(response->status, 400) << path;
      const Json error = Json::parse(response->body)["error"];
      EXPECT_EQ(error["code"], "context_length_exceeded") << path;
      EXPECT_EQ(error["param"], param) << path;
      EXPECT_NE(error["message"].get<std::string>().find("exceeds the available context size"), std::string::npos)
          << error;
    }
    const auto ollama = post("/api/chat", Json{{"messages", messages}}.dump());
    EXPECT_EQ(ollama->status, 400);
    EXPECT_NE(ollama->body.find("exceeds the available context size"), std::string::npos) << ollama->body;
    const auto anthropic = post("/v1/messages", Json{{"messages", messages}, {"max_tokens", 4}}.dump());
    EXPECT_EQ(anthropic->status, 400);
    const std::string sentence = Json::parse(anthropic->body)["error"]["message"];
    std::size_t n_tokens = 0, most = 0;
    ASSERT_EQ(std::sscanf(sentence.c_str(), "prompt is too long: %zu tokens > %zu maximum", &n_tokens, &most), 2)
        << sentence;
    EXPECT_GT(n_tokens, most);
    EXPECT_EQ(most, 2047U);  // the answer's first token takes one of 2048
  }
}

TEST_F(HttpTest, AFullQueueSaysWhenToComeBack) {
  BatchOptions options;
  options.n_parallel = 1;
  options.max_queued = 0;
  start({}, options);
  std::thread busy([&] { post("/v1/completions", completion(1500)); });
  wait_until([&] { return batch_->statistics().n_answering == 1; });
  const auto response = post("/v1/completions", completion(2));
  EXPECT_EQ(response->status, 503);
  EXPECT_GE(std::stoi(response->get_header_value("Retry-After")), 1);
  EXPECT_EQ(Json::parse(response->body)["error"]["code"], "queue_full");
  busy.join();
}

TEST_F(HttpTest, MorePromptsThanTheQueueHoldsAreAnsweredInTurn) {
  start({}, {.n_parallel = 2, .max_queued = 1});
  Json body = {{"prompt", Json::array()}, {"max_tokens", 3}, {"ignore_eos", true}};
  for (int i = 0; i < 20; ++i) body["prompt"].push_back("the hat " + std::string(static_cast<std::size_t>(i), 'a'));
  const Json answer = answer_to("/v1/completions", body);
  ASSERT_EQ(answer["choices"].size(), 20U);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 60);
  body["stream"] = true;
  std::vector<std::string> texts(20);
  int n_ends = 0;
  for (const Json& event : events(post("/v1/completions", body.dump())->body)) {
    if (!event.is_object()) continue;
    for (const Json& choice : event["choices"]) {
      texts[choice["index"].get<std::size_t>()] += choice["text"].get<std::string>();
      n_ends += choice["finish_reason"].is_string() ? 1 : 0;
    }
  }
  EXPECT_EQ(n_ends, 20);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(answer["choices"][i]["text"], texts[i]) << i;
}

TEST_F(HttpTest, WhatNeverFitsIsToldTheBudget) {
  start({}, {}, std::size_t{1200} << 10);
  const auto response = post("/v1/completions", R"({"prompt":")" + std::string(1500, 'x') + R"(","max_tokens":10})");
  EXPECT_EQ(response->status, 400);
  EXPECT_NE(response->body.find("a budget of"), std::string::npos) << response->body;
}

TEST_F(HttpTest, ClientsThatGoAwayAreCancelled) {
  start();
  for (const char* more : {R"(,"stream":true)", ""}) {
    const std::int64_t before = batch_->statistics().cancelled;
    const std::string body = completion(1900, std::string(R"(,"n":8)") + more);
    const int fd = open_connection();
    send_all(fd,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body);
    wait_until([&] { return batch_->statistics().n_answering >= 1; });
    close(fd);
    wait_until([&] { return batch_->statistics().cancelled == before + 1; });
  }
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, 0U);
}

TEST_F(HttpTest, SlowReadersAreGivenUp) {
  start([](ServiceOptions& options) { options.limits.write_s = 0.3; });
  const int fd = open_connection();
  const int small = 2048;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  const std::string body = completion(1900, R"(,"stream":true,"n":8,"logprobs":20,"temperature":1)");
  send_all(fd,
           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  wait_until([&] { return batch_->statistics().cancelled == 1; });
  EXPECT_EQ(engine_->memory().kv_bytes_in_use, 0U);
  close(fd);
}

TEST_F(HttpTest, LongRequestsTimeOut) {
  start([](ServiceOptions& options) { options.request_s = 0.05; });
  const auto response = post("/v1/completions", completion(1900, R"(,"n":8)"));
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(Json::parse(response->body)["error"]["code"], "timeout");
  wait_until([&] { return batch_->statistics().cancelled == 1; });
}

TEST_F(HttpTest, TheEndIsGraceful) {
  start();
  std::optional<httplib::Result> running;
  std::thread asking([&] { running.emplace(post("/v1/completions", completion(700))); });
  wait_until([&] { return batch_->statistics().n_answering == 1; });
  std::thread stopping([&] { service_->stop(60); });
  wait_until([&] {
    const auto response = client().Get("/health");
    return !response || response->status == 503;
  });
  asking.join();
  stopping.join();
  ASSERT_TRUE(running && *running);
  EXPECT_EQ((*running)->status, 200);
  EXPECT_EQ(Json::parse((*running)->body)["usage"]["completion_tokens"], 700);
}

TEST_F(HttpTest, TheEndIsAnnouncedWhileRequestsAreStillTaken) {
  start();
  service_->announce_end();
  const auto health = client().Get("/health");
  EXPECT_EQ(health->status, 503);
  EXPECT_EQ(Json::parse(health->body)["error"]["code"], "stopping");
  EXPECT_EQ(post("/v1/completions", completion(2))->status, 200);
}

TEST_F(HttpTest, AnswersThatOutlastTheGraceAreBrokenOff) {
  start();
  std::optional<httplib::Result> running;
  std::thread asking([&] { running.emplace(post("/v1/completions", completion(1900, R"(,"n":8)"))); });
  wait_until([&] { return batch_->statistics().n_answering == 8; });
  stop(0.01);
  asking.join();
  ASSERT_TRUE(running && *running);
  EXPECT_EQ((*running)->status, 503);
}

TEST(HttpServerTest, EndsWheneverItIsToldTo) {
  for (int delay_us = 0; delay_us < 2000; delay_us += 20) {
    HttpServer server({}, 4);
    server.bind("127.0.0.1", 0);
    const bool is_before = delay_us == 0;
    if (is_before) server.stop_serving();
    auto serving = std::async(std::launch::async, [&] { server.serve(); });
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    server.stop_serving();
    if (serving.wait_for(std::chrono::seconds(10)) == std::future_status::ready) continue;
    std::cerr << "serve() goes on after stop_serving(), " << delay_us << " us after its start\n";
    std::abort();  // no other call could end this thread
  }
}

TEST(HttpServerTest, EndsAlthoughClientsNeitherSendNorRead) {
  HttpServer server({}, 4);
  std::string large(std::size_t{64} << 20, 'x');
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) { response.body = large; });
  const int port = server.bind("127.0.0.1", 0);
  std::thread serving([&] { server.serve(); });
  for (const char* bytes : {"GET / HT", "GET / HTTP/1.1\r\n\r\n"}) {
    const int fd = connect_to(port);
    ASSERT_GT(send(fd, bytes, std::strlen(bytes), 0), 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto start = std::chrono::steady_clock::now();
  server.stop_serving();
  serving.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));  // less than header_s and write_s
}

// Each byte that a client takes is not a reason to wait for the next one for as long as for the first.
TEST(HttpServerTest, WhoReadsTooSlowlyIsGivenUp) {
  HttpServer server({.write_s = 1, .write_rate = 64 << 20}, 4);
  const std::string large(std::size_t{64} << 20, 'x');
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) { response.body = large; });
  const int port = server.bind("127.0.0.1", 0);
  std::thread serving([&] { server.serve(); });
  const int fd = connect_to(port);
  const std::string request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  ASSERT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  std::vector<char> buffer(std::size_t{256} << 10);
  std::size_t n_bytes = 0;
  for (ssize_t n = 0; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
    n_bytes += static_cast<std::size_t>(n);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_GT(n_bytes, 0U);
  EXPECT_LT(n_bytes, large.size());
  close(fd);
  server.stop_serving();
  serving.join();
}

// A proxy that is already connected when the server ends still gets a response to its request.
TEST(HttpServerTest, WhoHasConnectedIsAnsweredAtTheEnd) {
  HttpServer server({}, 4);
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) { response.status = 503; });
  const int port = server.bind("127.0.0.1", 0);
  const int waiting = connect_to(port);  // in the backlog: serve() has not begun
  server.stop_serving();
  std::thread serving([&] { server.serve(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const std::string request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  ASSERT_EQ(send(waiting, request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  std::string answer(12, ' ');
  EXPECT_EQ(recv(waiting, answer.data(), answer.size(), MSG_WAITALL), std::ssize(answer));
  EXPECT_EQ(answer, "HTTP/1.1 503");
  close(waiting);
  serving.join();
}

// The library takes what a handler throws for an error of the server, but not what is thrown while it writes the
// answer.
TEST(HttpServerTest, WhatIsThrownWithinAnAnswerEndsItsConnectionAlone) {
  HttpServer server({}, 4);
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/plain",
                                          [](std::size_t, httplib::DataSink&) -> bool { throw std::bad_alloc(); });
  });
  server.Get("/health", [](const httplib::Request&, httplib::Response& response) { response.body = "well"; });
  const int port = server.bind("127.0.0.1", 0);
  std::thread serving([&] { server.serve(); });
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(httplib::Client("127.0.0.1", port).Get("/"));
  const auto health = httplib::Client("127.0.0.1", port).Get("/health");
  EXPECT_TRUE(health && health->body == "well");
  server.stop_serving();
  serving.join();
}

class FailingDialect : public OpenAiDialect {
 public:
  FailingDialect() : OpenAiDialect(Endpoint::kCompletion, "tiny") {}
  std::string delta(const AnswerDelta&) override { throw Error(ErrorCode::kUnsupported, "there is no such text"); }
};

TEST_F(HttpTest, AStreamThatFailsEndsWithItsError) {
  start();
  HttpServer server({}, 4);
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) {
    auto answering = std::make_shared<Answering>();
    answering->dialect = std::make_unique<FailingDialect>();
    answering->request = answering->dialect->parse(parse_body(completion(9, R"(,"stream":true)")), *model_, {});
    answering->reader = std::make_unique<AnswerReader>(answering->request);
    answering->generation = std::make_unique<Generation>(*batch_, answering->request, 1);
    answering->deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    answering->on_done = [](const BatchResult&) {};
    answer_as_stream(std::move(answering), response);
  });
  const int port = server.bind("127.0.0.1", 0);
  std::thread serving([&] { server.serve(); });
  for (int i = 0; i < 2; ++i) {
    const auto answer = httplib::Client("127.0.0.1", port).Get("/");
    ASSERT_TRUE(answer);
    EXPECT_EQ(events(answer->body).back()["error"]["message"], "there is no such text") << answer->body;
  }
  server.stop_serving();
  serving.join();
  wait_until([&] { return batch_->statistics().n_answering == 0; });
}

// The tiny model has a token for each byte, so each of the grammar's characters takes four.
TEST_F(HttpTest, AnAnswerThatIsCutInsideACharacterEndsBeforeIt) {
  start();
  for (const bool is_streamed : {false, true}) {
    for (int n = 1; n <= 9; ++n) {
      const std::string emoji = "\U0001F389\U0001F389";
      const auto answer = post(
          "/completion",
          Json{{"prompt", "a"}, {"n_predict", n}, {"stream", is_streamed}, {"grammar", "root ::= \"" + emoji + "\""}}
              .dump());
      EXPECT_EQ(answer->body.find("\uFFFD"), std::string::npos) << n << answer->body;
      EXPECT_EQ(answer->body.find(emoji.substr(0, 4)) != std::string::npos, n >= 4) << n << answer->body;
    }
  }
}

// Without a length there is no body: nothing is waited for.
TEST_F(HttpTest, ARequestWithoutABodyIsAnsweredAtOnce) {
  start();
  for (const auto& [method, status] :
       {std::pair("POST", "HTTP/1.1 400"), std::pair("PUT", "HTTP/1.1 404"), std::pair("PATCH", "HTTP/1.1 404")}) {
    const std::string answer = raw(std::string(method) +
                                   " /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                   "Content-Type: application/json\r\n\r\n");
    EXPECT_TRUE(answer.starts_with(status)) << method << answer;
    const bool says_why = answer.find("the request has no body") != std::string::npos;
    EXPECT_EQ(says_why, std::string(method) == "POST") << answer;
  }
  for (const char* coding : {"gzip, chunked", "identity"}) {
    const std::string answer = raw(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + std::string(coding) + "\r\n\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 501")) << coding << answer;
  }
}

class ChunkedBodyTest : public HttpTest {
 protected:
  // Returns the answers to a request with a body in these chunks and to the one behind it.
  std::string ask(const std::string& chunks) const {
    return raw("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks +
               "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }
};

TEST_F(ChunkedBodyTest, MayHaveExtensionsAndTrailers) {
  start();
  for (const char* end : {"0\r\n\r\n", "0\r\nX-T: a\r\n\r\n", "000;a=b\r\nX-T: a\r\nDigest: \r\n\r\n"}) {
    for (const char* data : {"11\r\n{\"content\":\"hat\"}\r\n", "8;x=\"y\"\r\n{\"conten\r\n09 \r\nt\":\"hat\"}\r\n"}) {
      const std::string answers = ask(std::string(data) + end);
      EXPECT_TRUE(answers.starts_with("HTTP/1.1 200")) << data << end << answers;
      EXPECT_TRUE(answers.ends_with(R"({"status":"ok"})")) << data << end << answers;
    }
  }
}

// The rest of a body must not pass for another request.
TEST_F(ChunkedBodyTest, MustBeFramedAsTheStandardSays) {
  start();
  const std::string body = R"({"content":"hat"})";
  for (const std::string& chunks :
       {"11\r\n" + body + "!\r\n", "0x11\r\n" + body + "\r\n0\r\n\r\n", "+11\r\n" + body + "\r\n0\r\n\r\n",
        "11\n" + body + "\r\n0\r\n\r\n", "11;a\n" + body + "\r\n0\r\n\r\n", "11\r\n" + body + "\n0\r\n\r\n",
        "11\r\n" + body + "\r\n0\r\nX: a\n\r\n", "11\r\n" + body + "\r\n0\r\nX: a\r\r\n",
        "11\r\n" + body + "\r\nfffffffffffffffff\r\n", "11\r\n" + body + "\r\n\r\n"}) {
    const std::string answers = ask(chunks);
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 400")) << chunks << answers;
    EXPECT_EQ(answers.find("HTTP/1.1", 5), std::string::npos) << chunks << answers;
  }
}

TEST_F(HttpTest, ConnectionsAreUsedAgain) {
  start();
  httplib::Client one = client();
  one.set_keep_alive(true);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(one.Post("/v1/completions", completion(2), "application/json")->status, 200);
}

}  // namespace
}  // namespace winnow::server
