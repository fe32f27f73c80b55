//! The page as one document: markup, style and script in one, and a policy that forbids every request but those to its own server.

const MARKUP: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/page.css");
const SCRIPT: &str = include_str!("../page/page.js");

/// The document, whose script runs by this nonce.
pub(crate) fn html(nonce: &str) -> String {
    MARKUP.replace("{{nonce}}", nonce).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT)
}

/// Its content security policy.
pub(crate) fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_has_no_markup_that_a_policy_would_refuse() {
        let page = html("n0");
        // The name of a language, and patterns in the page itself.
        let page = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
        for request in ["http:", "https:", "src=", "@import", "<link", "url(", "{{", "innerHTML", "eval("] {
            assert!(!page.contains(request), "{request}");
        }
        // Attributes that are scripts or styles are refused by the policy, in silence.
        assert!(!MARKUP.contains(" style=") && !MARKUP.contains(" onclick="));
        assert_eq!(page.matches("nonce=\"n0\"").count(), 2, "the style's and the script's");
        assert!(policy("n0").contains("script-src 'nonce-n0'"));
    }
}
