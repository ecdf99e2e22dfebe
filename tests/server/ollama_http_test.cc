// Ollama's routes over HTTP, with Qwen3's template on a tiny model whose answers a schema forces.
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/dialects/ollama_dialect.h"
#include "server/http_test_support.h"

namespace winnow::server {
namespace {

class OllamaHttpTest : public QwenHttpTest {
 protected:
  Json ask(const std::string& path, Json body) {
    body["stream"] = false;
    return answer_to(path, body);
  }
  std::vector<Json> lines(const std::string& path, const Json& body) {
    const auto answer = post(path, body.dump());
    EXPECT_EQ(answer->status, 200) << answer->body;
    EXPECT_EQ(answer->get_header_value("Content-Type"), "application/x-ndjson");
    std::vector<Json> all;
    std::istringstream text(answer->body);
    for (std::string line; std::getline(text, line);) all.push_back(Json::parse(line));
    return all;
  }
  static Json say(const std::string& text) {
    return {{"model", "tiny"},
            {"format", {{"const", "so it is"}}},
            {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
  }
};

TEST_F(OllamaHttpTest, Chat) {
  start();
  const Json answer = ask("/api/chat", say("the hat"));
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["message"], Json::parse(R"({"role":"assistant","content":"\"so it is\""})"));
  EXPECT_EQ(answer["done"], true);
  EXPECT_EQ(answer["done_reason"], "stop");
  for (const char* name : {"prompt_eval_count", "eval_count", "total_duration", "prompt_eval_duration"}) {
    EXPECT_GT(answer[name], 0) << name;
  }
  EXPECT_EQ(answer["created_at"].get<std::string>().size(), std::string("2026-01-01T00:00:00.000000Z").size());
}

TEST_F(OllamaHttpTest, StreamsUnlessToldNot) {
  start();
  const std::vector<Json> all = lines("/api/chat", say("the hat"));
  ASSERT_GT(all.size(), 3U);
  std::string text;
  for (const Json& line : all) text += line["message"]["content"];
  EXPECT_EQ(text, "\"so it is\"");
  EXPECT_EQ(all.front()["done"], false);
  EXPECT_EQ(all.back()["done"], true);
  EXPECT_GT(all.back()["eval_count"], 0);
}

TEST_F(OllamaHttpTest, OptionsHold) {
  start();
  Json body = say("the hat");
  body["options"] = {{"num_predict", 2}, {"num_ctx", 4096}, {"temperature", 0.5}, {"seed", 1}, {"repeat_last_n", -1}};
  const Json answer = ask("/api/chat", body);
  EXPECT_EQ(answer["done_reason"], "length");
  EXPECT_EQ(answer["eval_count"], 2);
  body["options"] = {{"stop", " it"}, {"num_predict", -1}};
  EXPECT_EQ(ask("/api/chat", body)["message"]["content"], "\"so");
}

TEST_F(OllamaHttpTest, FormatIsJsonOrASchema) {
  start();
  Json body = say("the hat");
  body["format"] = "json";
  body["options"] = {{"num_predict", 1}};
  EXPECT_EQ(ask("/api/chat", body)["message"]["content"], "{");
  // The order in the request's text is the order in the answer.
  std::string text = say("a").dump();
  const std::string format = R"({"const":"so it is"})";
  text.replace(text.find(format), format.size(),
               R"({"type":"object","required":["z","a"],"properties":{"z":{"const":1},"a":{"const":2}}})");
  const auto answer = post("/api/chat", text.insert(1, "\"stream\":false,"));
  const std::string said = Json::parse(answer->body)["message"]["content"];
  EXPECT_LT(said.find("\"z\""), said.find("\"a\""));
}

TEST_F(OllamaHttpTest, Generate) {
  start();
  Json body = {{"model", "tiny"}, {"prompt", "the hat"}, {"format", {{"const", "so"}}}};
  const Json chat = ask("/api/generate", body);
  EXPECT_EQ(chat["response"], "\"so\"");
  body["system"] = "Be brief.";
  EXPECT_GT(ask("/api/generate", body)["prompt_eval_count"], chat["prompt_eval_count"]);
  body.erase("system");
  body["raw"] = true;
  EXPECT_LT(ask("/api/generate", body)["prompt_eval_count"], chat["prompt_eval_count"]);
  std::string text;
  for (const Json& line : lines("/api/generate", body)) text += line["response"];
  EXPECT_EQ(text, "\"so\"");
}

TEST_F(OllamaHttpTest, NothingToSayLoadsTheModel) {
  start();
  EXPECT_EQ(ask("/api/generate", {{"model", "tiny"}})["done_reason"], "load");
  EXPECT_EQ(ask("/api/chat", {{"model", "tiny"}, {"messages", Json::array()}})["done_reason"], "load");
  for (const Json& now : {Json(0), Json("0"), Json("0s"), Json("0m0s")}) {
    EXPECT_EQ(ask("/api/generate", {{"model", "tiny"}, {"keep_alive", now}})["done_reason"], "unload") << now;
  }
  for (const Json& later : {Json(-1), Json("5m"), Json("10s"), Json("")}) {
    EXPECT_EQ(ask("/api/generate", {{"model", "tiny"}, {"keep_alive", later}})["done_reason"], "load") << later;
  }
}

// ollama accepts these requests, and some of its clients send them.
TEST_F(OllamaHttpTest, IsNotStricterThanOllama) {
  std::string log;
  start([&](ServiceOptions& options) { options.log = [&](const Json& line) { log += line.dump(); }; });
  Json body = say("the hat");
  body["options"] = {{"tfs_z", 1.0}, {"num_predict", 2}};
  ask("/api/chat", body);
  const std::vector<Json> embeddings = {ask("/api/embed", {{"input", ""}}),
                                        ask("/api/embed", {{"input", Json::array()}})};
  for (const Json& made : embeddings) EXPECT_EQ(made["embeddings"], Json::array());
  EXPECT_EQ(ask("/api/embeddings", {{"prompt", ""}})["embedding"], Json::array());
  body["messages"].push_back({{"role", "tool"}, {"content", "rain"}});
  ask("/api/chat", body);
  stop(1);
  EXPECT_NE(log.find("'tfs_z'"), std::string::npos);
}

TEST_F(OllamaHttpTest, Logprobs) {
  start();
  Json body = say("the hat");
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json answer = ask("/api/chat", body);
  ASSERT_EQ(answer["logprobs"].size(), answer["eval_count"].get<std::size_t>());
  EXPECT_EQ(answer["logprobs"][0]["top_logprobs"].size(), 2U);
  EXPECT_LE(answer["logprobs"][0]["logprob"], 0);
  const Json raw = ask("/api/generate",
                       {{"prompt", "the hat"}, {"raw", true}, {"logprobs", true}, {"options", {{"num_predict", 3}}}});
  ASSERT_EQ(raw["logprobs"].size(), 3U);
  std::size_t n = 0;
  for (const Json& line :
       lines("/api/generate",
             {{"prompt", "the hat"}, {"raw", true}, {"logprobs", true}, {"options", {{"num_predict", 3}}}})) {
    n += line.value("logprobs", Json::array()).size();
  }
  EXPECT_EQ(n, 3U);
}

TEST_F(OllamaHttpTest, CallAnswerCall) {
  start();
  Json body = {{"model", "tiny"},
               {"think", false},
               {"messages", Json::array({{{"role", "user"}, {"content", "Weather?"}}})},
               {"tools", Json::parse(R"([{"type":"function","function":{"name":"weather","description":"of a city",
                  "parameters":{"type":"object","required":["city"],
                                "properties":{"city":{"type":"string"}}}}}])")},
               {"options", {{"num_predict", 8}}}};
  ask("/api/chat", body);
  // ollama's clients send a call with an object as arguments and without IDs.
  body["messages"].push_back(Json::parse(
      R"({"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"weather","arguments":{"city":"Oslo"}}}]})"));
  body["messages"].push_back({{"role", "tool"}, {"content", "rain"}});
  const Json older = ask("/api/chat", body);
  body["messages"].back()["tool_name"] = "weather";
  EXPECT_EQ(ask("/api/chat", body)["prompt_eval_count"], older["prompt_eval_count"]);
}

TEST(OllamaDialectTest, ArgumentsComeInTheirOrder) {
  OllamaDialect dialect(OllamaDialect::Kind::kChat, "tiny");
  WholeAnswer answer;
  answer.message.tool_calls = {{.id = "1", .name = "f", .arguments = R"({"zone":"CET","city":"Oslo"})"}};
  EXPECT_NE(dialect.whole({answer}, {}).find(R"("arguments":{"zone":"CET","city":"Oslo"})"), std::string::npos);
  AnswerDelta delta;
  delta.delta = {.tool_call = 0, .name = "f", .arguments = R"({"zone":"CET","city":"Oslo"})"};
  EXPECT_EQ(dialect.delta(delta), "");
  EXPECT_NE(dialect.finish({}).find(R"("arguments":{"zone":"CET","city":"Oslo"})"), std::string::npos);
}

TEST_F(OllamaHttpTest, WhatThereIs) {
  start();
  EXPECT_TRUE(get_json("/api/version")["version"].is_string());
  for (const char* path : {"/api/tags", "/api/ps"}) {
    const Json model = get_json(path)["models"].at(0);
    EXPECT_EQ(model["name"], "tiny:latest");
    EXPECT_EQ(model["details"]["format"], "gguf");
    EXPECT_EQ(model["digest"].get<std::string>().size(), 64U);
  }
  for (const char* name : {"tiny", "tiny:latest"}) {
    const auto answer = post("/api/show", Json{{"model", name}}.dump());
    ASSERT_EQ(answer->status, 200);
    const Json shown = Json::parse(answer->body);
    EXPECT_EQ(shown["model_info"]["llama.block_count"], 3);
    EXPECT_EQ(shown["capabilities"], Json::parse(R"(["completion","thinking","tools"])"));
  }
  EXPECT_EQ(post("/api/show", R"({"model":"other"})")->status, 404);
}

TEST_F(OllamaHttpTest, ErrorsInItsShape) {
  start();
  const auto refusal = [&](const std::string& path, const std::string& body) {
    const auto answer = post(path, body);
    EXPECT_EQ(answer->status, 400) << body;
    const Json json = Json::parse(answer->body);
    EXPECT_TRUE(json["error"].is_string());
    return json["error"].get<std::string>();
  };
  for (const char* field :
       {R"("options":7)", R"("options":{"num_predict":"a"})", R"("options":{"stop":7})", R"("format":"xml")",
        R"("format":7)", R"("think":7)", R"("tools":7)", R"("tools":[7])", R"("stream":7)"}) {
    refusal("/api/chat", R"({"messages":[{"role":"user","content":"a"}],)" + std::string(field) + "}");
  }
  EXPECT_NE(refusal("/api/chat", R"({"messages":[{"role":"user","content":"a"}],"options":{"top_p":7}})")
                .find("'options.top_p'"),
            std::string::npos);
  for (const char* message : {R"(7)", R"({"role":"odd"})", R"({"role":"user","content":"a","images":["x"]})",
                              R"({"role":"assistant","tool_calls":7})"}) {
    refusal("/api/chat", R"({"messages":[)" + std::string(message) + "]}");
  }
  for (const char* field :
       {R"("context":[1])", R"("template":"x")", R"("images":["x"])", R"("prompt":7)", R"("raw":true,"system":"x")"}) {
    refusal("/api/generate", R"({"prompt":"a",)" + std::string(field) + "}");
  }
  EXPECT_TRUE(Json::parse(client().Get("/api/odd")->body)["error"].is_string());
}

}  // namespace
}  // namespace winnow::server
