//! Answering questions for one user: in a process of its own that has become that user for good, or
//! in a thread of a user who mounts an index alone.

use crate::protocol::{Failure, ReplyKind, RequestKind, Setup};
use crate::view::UserView;
use canopy_as_user::{Channel, Service, Unanswered};
use canopy_index::Index;
use canopy_model::escape;
use nix::errno::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;

/// The service that looks into an index as a user. Each shard that is read takes open files. While
/// a process does not answer, the kernel may keep a directory locked for all users.
pub const VIEW: Service = Service {
    name: "view",
    program: "canopy-ns",
    memory_bytes_max: Some(4 << 30),
    files_max: Some(65_536),
    writes_files: false,
    ends_first: true,
    variables: &["TZ"],
    keeps_directory: false,
    serve: |channel| match serve(channel) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    },
};

fn serve(channel: Channel) -> io::Result<()> {
    let Setup { index, root } = channel.receive()?;
    let root = escape(root.as_os_str().as_bytes()).into_owned();
    let view = UserView::new(Arc::new(move || Ok(vec![Index::open(&index)?])), root);
    answer_all(channel, view)
}

/// Answers until the socket is closed.
pub(crate) fn answer_all(channel: Channel, view: UserView) -> io::Result<()> {
    channel.serve(move |asked| view.answer(asked), failure)
}

fn failure(asked: &RequestKind, why: Unanswered) -> Result<ReplyKind, Failure> {
    let log = match why {
        Unanswered::Panicked => Some(format!("a question could not be answered: {}", kind(asked))),
        Unanswered::TooLong => None,
    };
    Err(Failure { errno: Errno::EIO as i32, log })
}

fn kind(asked: &RequestKind) -> &'static str {
    match asked {
        RequestKind::Lookup(..) => "a name",
        RequestKind::Attributes(_) => "attributes",
        RequestKind::List { .. } | RequestKind::Close(_) => "a directory",
        RequestKind::XattrNames(_) | RequestKind::Xattr(..) => "extended attributes",
        RequestKind::Access(..) => "access",
    }
}
