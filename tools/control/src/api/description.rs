//! The OpenAPI description of the API: made from the handlers and the types that they take and
//! give.
//!
//! Neighbours: `api::router` gathers the routes, [`rules`](super::rules) say which of them need
//! the token, docs/api.md lists them for people (a test compares).
//!
//! Invariant: nothing about a route is written here that its handler, its types or `rules` know.

use std::sync::Arc;

use axum::extract::{Extension, Json};
use axum::http::Method;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref,
};
use utoipa::{PartialSchema, ToSchema};

use super::rules::{self, Need};
use super::types::ErrorBody;

/// Name of the token in the description.
const TOKEN: &str = "token";

/// Title and version, before the routes are known.
pub fn head() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Hearth control node")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "What the command line does, for scripts. JSON over the unix socket in the state directory (all rights) \
             and over TCP, where a change needs the token. Every error answer has a stable word and a sentence.",
        ))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// Adds what all routes have in common: error answers, and the token where it is needed.
pub fn finish(mut description: OpenApi) -> OpenApi {
    let components = description.components.get_or_insert_with(Components::new);
    let error = ErrorBody::name().to_string();
    components
        .schemas
        .insert(error.clone(), ErrorBody::schema());
    components.add_security_scheme(
        TOKEN,
        SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
    );
    for (path, item) in &mut description.paths.paths {
        for (method, operation) in operations(item) {
            let content = ContentBuilder::new()
                .schema(Some(Ref::from_schema_name(&error)))
                .build();
            let refused = ResponseBuilder::new()
                .description("It was not done, and why.")
                .content("application/json", content)
                .build();
            // The names of handlers are those of their modules: `get` is several.
            operation.operation_id = Some(operation_id(&method, path));
            let responses = &mut operation.responses.responses;
            responses.insert("default".to_string(), refused.into());
            if rules::need(&method, path).is_some_and(|need| need != Need::Look) {
                operation.security = Some(vec![SecurityRequirement::new(
                    TOKEN,
                    std::iter::empty::<String>(),
                )]);
            }
        }
    }
    description
}

/// `post_jobs_id_hold` for `POST /v1/jobs/{id}/hold`.
fn operation_id(method: &Method, path: &str) -> String {
    let words = path.split(|character: char| !character.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && *word != "v1");
    let mut id = method.as_str().to_ascii_lowercase();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}

/// The operations of a path with their methods.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let all = [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
        (Method::PATCH, &mut item.patch),
    ];
    let all = all.into_iter();
    all.filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "control",
    responses((status = 200, body = Object))
)]
pub async fn get(Extension(description): Extension<Arc<OpenApi>>) -> Json<OpenApi> {
    Json((*description).clone())
}
