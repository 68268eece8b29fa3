//! Everything that the other end of a connection can send, decoded from any bytes: frames, one after
//! the other, and greetings. What is decoded is encoded again and must be equal.

use super::{
    CLIENT_GREETING, FrameError, FrameWriter, LENGTH, SERVER_GREETING, SHARED_MAX, Sizes, Status,
    ToClient, Window, check_client_greeting, client_greeting, decode_calls, decode_greeting,
    decode_to_client, frame_length, server_greeting,
};
use crate::wire::frame::Admission;

const SIZES: Sizes =
    Sizes { window: Window { calls: 100, bytes: 4 << 20 }, body_max: SHARED_MAX as u32 };

/// Runs a function with each whole frame.
fn each_frame(mut bytes: &[u8], run: impl Fn(&[u8])) {
    while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() {
        let Ok(length) = frame_length(*length, SIZES.frame_max()) else { return };
        assert!(length <= SIZES.frame_max());
        let Some((frame, rest)) = rest.split_at_checked(length) else { return run(rest) };
        run(frame);
        bytes = rest;
    }
}

/// Returns the frame that a writer holds, without its length.
fn written(mut writer: FrameWriter) -> Vec<u8> {
    let mut buffer = Vec::new();
    writer.take(&mut buffer);
    let length = buffer.first_chunk::<LENGTH>().map(|length| frame_length(*length, usize::MAX));
    assert_eq!(length, Some(Ok(buffer.len() - LENGTH)), "one frame");
    buffer.split_off(LENGTH)
}

/// Decodes bytes as a server does.
pub(crate) fn to_server(bytes: &[u8]) {
    if let Some(greeting) = bytes.first_chunk::<CLIENT_GREETING>() {
        let _ = check_client_greeting(greeting);
    }
    each_frame(bytes, |frame| {
        let Ok(calls) = decode_calls(frame, SIZES.body_max) else { return };
        let mut writer = FrameWriter::default();
        for call in &calls {
            writer.call(call.id, call.left_ms, call.room, &frame[call.body.clone()]);
        }
        // A frame of small calls beyond 1 MiB is allowed, but not made.
        if frame.len() <= SHARED_MAX {
            assert!(written(writer) == frame);
        }
    });
}

/// Decodes bytes as a client does.
pub(crate) fn to_client(bytes: &[u8]) {
    if let Some(greeting) = bytes.first_chunk::<SERVER_GREETING>() {
        let _ = decode_greeting(greeting);
    }
    each_frame(bytes, |frame| {
        let mut writer = FrameWriter::default();
        match decode_to_client(frame) {
            Ok(ToClient::Replies(replies)) => {
                for reply in &replies {
                    writer.reply(reply.id, reply.status, &frame[reply.body.clone()]);
                }
            }
            Ok(ToClient::Goodbye(taken)) => writer.goodbye(taken),
            Err(FrameError::Reported(text)) => return assert!(text.len() <= 3 * 512),
            Err(_) => return,
        }
        if frame.len() <= SHARED_MAX {
            assert!(written(writer) == frame);
        }
    });
}

/// Frames of calls, and the greeting of a client.
pub(crate) fn seeds_to_server() -> Vec<Vec<u8>> {
    let mut writer = FrameWriter::default();
    for (id, body) in [&b"create"[..], b"", &[7; 100]].into_iter().enumerate() {
        writer.call(id as u32, 1_000, 1 << 14, body);
    }
    let mut frames = Vec::new();
    writer.take(&mut frames);
    vec![frames, client_greeting().to_vec()]
}

/// Frames of all kinds that a client gets, and greetings of a server.
pub(crate) fn seeds_to_client() -> Vec<Vec<u8>> {
    let mut writer = FrameWriter::default();
    let statuses =
        [Status::Answered, Status::Refused, Status::Failed, Status::TooLarge, Status::Expired];
    for (id, status) in statuses.into_iter().enumerate() {
        writer.reply(id as u32, status, b"an inode");
    }
    writer.goodbye(17);
    writer.reply(6, Status::Answered, b"");
    writer.violation("a frame ends within a call");
    let mut frames = Vec::new();
    writer.take(&mut frames);
    vec![
        frames,
        server_greeting(Admission::Welcome, SIZES, ""),
        server_greeting(Admission::Denied, Sizes::default(), "unknown certificate"),
    ]
}
