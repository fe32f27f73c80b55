//! What a request to the API is, by its method and path. It must never look at a body.

/// A kind of request, as one counts them: `PATCH pods/status`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub verb: String,
    /// The plural, with a subresource after a slash; the whole path of what is no resource.
    pub resource: String,
}

impl Call {
    /// That of a request.
    pub fn of(method: &str, path: &str, query: &str) -> Call {
        let mut parts = path.trim_matches('/').split('/');
        let is_resource = match parts.next() {
            Some("api") => parts.next().is_some(),
            Some("apis") => parts.next().is_some() && parts.next().is_some(),
            _ => false,
        };
        let mut rest: Vec<&str> = parts.collect();
        if !is_resource || rest.is_empty() {
            return Call { verb: method.to_owned(), resource: path.to_owned() };
        }
        if rest[0] == "namespaces" && rest.len() > 2 {
            rest.drain(..2);
        }
        let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
        let verb = match (method, rest.len()) {
            ("GET", _) if is_watch => "WATCH",
            ("GET", 1) => "LIST",
            _ => method,
        };
        let resource = if rest.len() > 2 { format!("{}/{}", rest[0], rest[2]) } else { rest[0].to_owned() };
        Call { verb: verb.to_owned(), resource }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.verb, self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_by_its_verb_and_resource() {
        let told = |method, path, query| Call::of(method, path, query).to_string();
        assert_eq!(told("GET", "/api/v1/pods", ""), "LIST pods");
        assert_eq!(told("GET", "/api/v1/pods", "limit=5&watch=true"), "WATCH pods");
        assert_eq!(told("GET", "/api/v1/namespaces/a/pods/b", ""), "GET pods");
        assert_eq!(told("PATCH", "/api/v1/namespaces/a/pods/b/status", ""), "PATCH pods/status");
        assert_eq!(told("DELETE", "/apis/batch/v1/namespaces/a/jobs", ""), "DELETE jobs");
        assert_eq!(told("GET", "/api/v1/namespaces/a", ""), "GET namespaces");
        assert_eq!(told("GET", "/api/v1/namespaces", ""), "LIST namespaces");
        assert_eq!(told("GET", "/readyz", ""), "GET /readyz");
        assert_eq!(told("GET", "/apis/batch/v1", ""), "GET /apis/batch/v1");
    }
}
