// /v1/embeddings and ollama's two routes.
#include <cmath>
#include <cstring>

#include "server/http_test_support.h"
#include "winnow/embedding.h"

namespace winnow::server {
namespace {

class EmbeddingsHttpTest : public HttpTest {
 protected:
  std::vector<float> expected(const std::string& text, Pooling pooling = Pooling::kMean, bool is_normalised = true) {
    const auto engine = Engine::create(model_, {.n_threads = 1, .n_batch = 64});
    return embed(*engine, model_->tokenize(text, true, true),
                 {.pooling = pooling, .is_normalised = is_normalised, .on_progress = {}});
  }
  // Returns the message of a request that must be refused.
  std::string refusal(const std::string& path, const Json& body) {
    const auto answer = post(path, body.dump());
    EXPECT_EQ(answer->status, 400) << answer->body;
    const Json error = Json::parse(answer->body)["error"];
    return error.is_string() ? error : error["message"];
  }
};

TEST_F(EmbeddingsHttpTest, OneTextManyTextsAndTokens) {
  start();
  const Json one = answer_to("/v1/embeddings", {{"model", "any"}, {"input", "the hat"}, {"user", "somebody"}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "tiny");
  ASSERT_EQ(one["data"].size(), 1U);
  EXPECT_EQ(one["data"][0]["object"], "embedding");
  EXPECT_EQ(one["data"][0]["index"], 0);
  EXPECT_EQ(one["data"][0]["embedding"].get<std::vector<float>>(), expected("the hat"));
  const auto n_tokens = static_cast<std::int64_t>(model_->tokenize("the hat", true, true).size());
  EXPECT_EQ(one["usage"]["prompt_tokens"], n_tokens);
  EXPECT_EQ(one["usage"]["total_tokens"], n_tokens);
  const Json many = answer_to("/v1/embeddings", {{"input", {"the hat", "and", "the hat"}}, {"dimensions", 64}});
  ASSERT_EQ(many["data"].size(), 3U);
  EXPECT_EQ(many["data"][1]["index"], 1);
  EXPECT_EQ(many["data"][1]["embedding"].get<std::vector<float>>(), expected("and"));
  EXPECT_EQ(many["data"][0]["embedding"], many["data"][2]["embedding"]);
  const std::vector<Token> tokens = model_->tokenize("the hat", true, true);
  EXPECT_EQ(answer_to("/v1/embeddings", {{"input", tokens}})["data"], one["data"]);
  EXPECT_EQ(answer_to("/v1/embeddings", {{"input", {tokens, Json("and")}}})["data"][0]["embedding"],
            one["data"][0]["embedding"]);
}

TEST_F(EmbeddingsHttpTest, Base64) {
  start();
  const Json answer = answer_to("/v1/embeddings", {{"input", "the hat"}, {"encoding_format", "base64"}});
  const std::string text = answer["data"][0]["embedding"];
  EXPECT_EQ(text.size(), (64 * sizeof(float) + 2) / 3 * 4);
  std::string bytes;
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::uint32_t group = 0, n = 0; const char c : text) {
    group = group << 6 | static_cast<std::uint32_t>(c == '=' ? 0 : digits.find(c));
    if (++n % 4 != 0) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(group >> shift & 255U);
    group = 0;
  }
  std::vector<float> row(64);
  std::memcpy(row.data(), bytes.data(), row.size() * sizeof(float));
  EXPECT_EQ(row, expected("the hat"));
}

TEST_F(EmbeddingsHttpTest, PoolingOfTheServer) {
  start([](ServiceOptions& options) { options.defaults.pooling = Pooling::kLast; });
  const Json answer = answer_to("/v1/embeddings", {{"input", "the hat"}});
  EXPECT_EQ(answer["data"][0]["embedding"].get<std::vector<float>>(), expected("the hat", Pooling::kLast));
}

TEST_F(EmbeddingsHttpTest, Ollama) {
  start([](ServiceOptions& options) { options.defaults.session.n_ctx = 40; });
  const Json many = answer_to("/api/embed", {{"model", "tiny"}, {"input", {"the hat", "and"}}});
  EXPECT_EQ(many["embeddings"][1].get<std::vector<float>>(), expected("and"));
  EXPECT_EQ(many["model"], "tiny");
  EXPECT_GT(many["prompt_eval_count"], 2);
  EXPECT_GT(many["total_duration"], 0);
  EXPECT_EQ(answer_to("/api/embed", {{"input", "and"}})["embeddings"][0], many["embeddings"][1]);
  EXPECT_EQ(answer_to("/api/embeddings", {{"prompt", "and"}})["embedding"].get<std::vector<float>>(),
            expected("and", Pooling::kMean, false));
  const std::string longer = std::string(30, 'a') + " the hat and the hat and the hat";
  ASSERT_GT(model_->tokenize(longer, true, true).size(), 40U);
  EXPECT_EQ(answer_to("/api/embed", {{"input", longer}})["prompt_eval_count"], 40);
  EXPECT_NE(refusal("/api/embed", {{"input", longer}, {"truncate", false}}).find("40"), std::string::npos);
}

TEST_F(EmbeddingsHttpTest, WhatIsNotUnderstoodIsSaid) {
  start([](ServiceOptions& options) { options.defaults.session.n_ctx = 40; });
  const std::string path = "/v1/embeddings";
  EXPECT_NE(refusal(path, Json::object()).find("'input'"), std::string::npos);
  for (const Json& input : {Json(3), Json::array(), Json({"a", 3}), Json({Json::array()}), Json({{"text", "a"}}),
                            Json({-1}), Json({1.5}), Json(nullptr)}) {
    EXPECT_NE(refusal(path, {{"input", input}}).find("'input'"), std::string::npos) << input;
  }
  EXPECT_NE(refusal(path, {{"input", ""}}).find("empty"), std::string::npos);
  EXPECT_NE(refusal(path, {{"input", {"a", ""}}}).find("empty"), std::string::npos);
  EXPECT_NE(refusal(path, {{"input", {5, 300}}}).find("token 300"), std::string::npos);
  EXPECT_NE(refusal(path, {{"input", "a"}, {"dimensions", 32}}).find("64"), std::string::npos);
  EXPECT_NE(refusal(path, {{"input", "a"}, {"encoding_format", "hex"}}).find("base64"), std::string::npos);
  EXPECT_NE(refusal(path, {{"input", std::vector<std::string>(2049, "a")}}).find("2048"), std::string::npos);
  const std::vector<Token> longer(41, 5);
  EXPECT_NE(refusal(path, {{"input", {Json("a"), Json(longer)}}}).find("text 1 of 'input' has 41 tokens"),
            std::string::npos);
  EXPECT_NE(refusal(path, {{"input", std::string(1 << 20, 'a')}}).find("context"), std::string::npos);
  EXPECT_NE(refusal("/api/embed", {{"input", {{1, 2}}}}).find("'input'"), std::string::npos);
  EXPECT_NE(refusal("/api/embeddings", Json::object()).find("'prompt'"), std::string::npos);
}

// The list has more texts than the queue has places; other requests are answered meanwhile.
TEST_F(EmbeddingsHttpTest, ALongListLetsOthersPass) {
  start({}, {.n_parallel = 2, .max_queued = 1});
  std::thread list([&] {
    const Json answer = answer_to("/v1/embeddings", {{"input", std::vector<std::string>(300, "the hat and the hat")}});
    EXPECT_EQ(answer["data"].size(), 300U);
  });
  int n_answered = 0;
  for (int i = 0; i < 5; ++i) n_answered += post("/v1/completions", completion(5))->status == 200;
  EXPECT_GT(n_answered, 0);
  list.join();
}

TEST_F(EmbeddingsHttpTest, AClientThatLeavesEndsIt) {
  start();
  const std::string body = Json({{"input", std::vector<std::string>(2000, std::string(400, 'a'))}}).dump();
  const int fd = open_connection();
  send_all(fd, "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body);
  wait_until([&] { return batch_->statistics().requests > 0; });
  close(fd);
  wait_until([&] { return batch_->statistics().bytes_reserved == 0 && engine_->memory().kv_bytes_in_use == 0; });
  const std::int64_t n = batch_->statistics().requests;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LE(batch_->statistics().requests, n + 2);
  EXPECT_LT(batch_->statistics().requests, 2000);
}

}  // namespace
}  // namespace winnow::server
