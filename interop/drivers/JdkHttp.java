// The HTTP client of the JDK, with which a2a-java calls agents. It offers HTTP/2 with every request: `Upgrade: h2c`.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;

class JdkHttp {
    static final HttpClient HTTP = HttpClient.newHttpClient();

    interface Way {
        Map<String, Object> ask(String url) throws Exception;
    }

    public static void main(String[] pairs) {
        for (var pair : pairs) {
            var parts = pair.split("=", 2);
            show(parts[0], parts[1], "stream", JdkHttp::stream);
            show(parts[0], parts[1], "send", JdkHttp::send);
        }
    }

    static void show(String server, String url, String name, Way way) {
        var seen = new JsonObject();
        seen.addProperty("server", server);
        seen.addProperty("way", name);
        try {
            way.ask(url).forEach((key, value) -> seen.add(key, new Gson().toJsonTree(value)));
        } catch (Exception error) {
            error.printStackTrace();
            seen.addProperty("error", error.toString());
        }
        System.out.println("\nSEEN " + seen);
    }

    static Map<String, Object> stream(String url) throws Exception {
        var events = HTTP.send(request(url, "SendStreamingMessage"), BodyHandlers.ofLines()).body()
            .filter(line -> line.startsWith("data: "))
            .map(line -> JsonParser.parseString(line.substring(6)).getAsJsonObject().getAsJsonObject("result"));
        List<String> live = new ArrayList<>();
        events.filter(event -> event.has("artifactUpdate"))
            .forEach(event -> live.add(text(event.getAsJsonObject("artifactUpdate").getAsJsonObject("artifact"))));
        return Map.of("answer", String.join("", live), "live", live);
    }

    static Map<String, Object> send(String url) throws Exception {
        var answer = HTTP.send(request(url, "SendMessage"), BodyHandlers.ofString()).body();
        var task = JsonParser.parseString(answer).getAsJsonObject().getAsJsonObject("result").getAsJsonObject("task");
        var artifacts = new StringBuilder();
        task.getAsJsonArray("artifacts").forEach(artifact -> artifacts.append(text(artifact.getAsJsonObject())));
        return Map.of("answer", artifacts.toString());
    }

    static HttpRequest request(String url, String method) {
        var message = Map.of("messageId", UUID.randomUUID(), "role", "ROLE_USER", "parts", List.of(Map.of("text", "Go")));
        var body = Map.of("jsonrpc", "2.0", "id", 1, "method", method, "params", Map.of("message", message));
        return HttpRequest.newBuilder(URI.create(url))
            .header("Content-Type", "application/json")
            .header("A2A-Version", "1.0")
            .POST(HttpRequest.BodyPublishers.ofString(new Gson().toJson(body)))
            .build();
    }

    static String text(JsonObject artifact) {
        var text = new StringBuilder();
        artifact.getAsJsonArray("parts").forEach(part -> {
            var fields = part.getAsJsonObject();
            text.append(fields.has("text") ? fields.get("text").getAsString() : fields.get("data").toString());
        });
        return text.toString();
    }
}
