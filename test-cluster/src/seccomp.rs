//! The bounds of system calls that `RuntimeDefault` means, from the engines' common profile (`containers-common`) to what a
//! container runtime takes: the profile says what depends on capabilities and processors, a runtime is told what holds. Pure.

use serde_json::{Value, json};

/// How the profile calls this processor.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// What holds of the profile for a container with these capabilities.
pub(super) fn bounds(profile: &Value, capabilities: &[String]) -> Value {
    let has = |list: &Value, is: &dyn Fn(&str) -> bool| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).any(is)
    };
    let is_ours = |name: &str| name == ARCHITECTURE;
    let is_granted = |name: &str| capabilities.iter().any(|one| one == name);
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let holds = |rule: &&Value| {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        (is_empty(&includes["caps"]) || has(&includes["caps"], &is_granted))
            && (is_empty(&includes["arches"]) || has(&includes["arches"], &is_ours))
            && !has(&excludes["caps"], &is_granted)
            && !has(&excludes["arches"], &is_ours)
    };
    let rules: Vec<Value> =
        profile["syscalls"].as_array().into_iter().flatten().filter(holds).map(rule).collect();
    json!({
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [if ARCHITECTURE == "arm64" { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" }],
        "syscalls": rules,
    })
}

fn rule(rule: &Value) -> Value {
    let keys = ["names", "action", "errnoRet", "args"];
    keys.into_iter()
        .filter(|key| !rule[key].is_null())
        .map(|key| (key.to_owned(), rule[key].clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_allowed_to_those_whose_capability_the_profile_asks_for() {
        let rule = |name: &str, includes: Value, excludes: Value| json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "includes": includes, "excludes": excludes });
        let profile = json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "syscalls": [
            rule("read", json!({}), json!({})),
            rule("mount", json!({ "caps": ["CAP_SYS_ADMIN"] }), json!({})),
            rule("chroot", json!({}), json!({ "caps": ["CAP_SYS_CHROOT"] })),
            rule("ours", json!({ "arches": [ARCHITECTURE] }), json!({})),
            rule("theirs", json!({ "arches": ["s390"] }), json!({})),
        ] });
        let names = |capabilities: &[&str]| {
            let capabilities: Vec<String> = capabilities.iter().map(|one| (*one).to_owned()).collect();
            let bounds = bounds(&profile, &capabilities);
            let rules = bounds["syscalls"].as_array().unwrap().clone();
            rules.iter().map(|rule| rule["names"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["read", "chroot", "ours"]);
        assert_eq!(names(&["CAP_SYS_ADMIN", "CAP_SYS_CHROOT"]), ["read", "mount", "ours"]);
        assert_eq!(bounds(&profile, &[])["defaultErrnoRet"], 38);
    }
}
