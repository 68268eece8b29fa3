//! Frames that are taken apart again, and their limits.

use super::*;

/// Returns the frames that a writer holds, without their lengths.
fn frames(writer: &mut FrameWriter) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    writer.take(&mut bytes);
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH>() {
        let length = frame_length(*length, BODY_MAX + FRAME_REST).unwrap();
        frames.push(behind[..length].to_vec());
        rest = &behind[length..];
    }
    assert!(rest.is_empty());
    frames
}

#[test]
fn calls_are_decoded_as_they_were_encoded() {
    let mut writer = FrameWriter::default();
    writer.call(7, 0, 80, b"first");
    writer.call(u32::MAX, u32::MAX, 0, b"");
    let frames = frames(&mut writer);
    assert_eq!(frames.len(), 1);
    let calls = decode_calls(&frames[0], 1 << 20).unwrap();
    let bodies = Vec::from_iter(calls.iter().map(|call| &frames[0][call.body.clone()]));
    assert_eq!(bodies, [&b"first"[..], b""]);
    let heads = Vec::from_iter(calls.iter().map(|call| (call.id, call.left_ms, call.room)));
    assert_eq!(heads, [(7, 0, 80), (u32::MAX, u32::MAX, 0)]);
}

#[test]
fn frames_end_at_their_limits() {
    let mut writer = FrameWriter::default();
    (0..CALLS_MAX as u32 + 1).for_each(|id| writer.call(id, 0, 0, b""));
    writer.call(0, 0, 0, &[0; SHARED_MAX]);
    writer.call(0, 0, 0, &vec![0; BODY_MAX]);
    writer.call(0, 0, 0, b"");
    assert_eq!(writer.begun(), 5);
    let frames = frames(&mut writer);
    let body_max = BODY_MAX as u32;
    let counts = frames.iter().map(|frame| decode_calls(frame, body_max).unwrap().len());
    assert_eq!(Vec::from_iter(counts), [256, 1, 1, 1, 1]);
    let limit = Err(FrameError::Body(SHARED_MAX, SHARED_MAX - 1));
    assert_eq!(decode_calls(&frames[2], SHARED_MAX as u32 - 1), limit);
}

#[test]
fn replies_goodbyes_and_violations_keep_their_order() {
    let mut writer = FrameWriter::default();
    writer.reply(1, Status::Answered, b"yes");
    writer.goodbye(9);
    writer.reply(2, Status::Failed, b"");
    writer.violation("why");
    let decoded = frames(&mut writer).into_iter().map(|frame| decode_to_client(&frame));
    let entry = |id, status, length: usize| ReplyEntry { id, status, body: 10..10 + length };
    let expected = [
        Ok(ToClient::Replies(vec![entry(1, Status::Answered, 3)])),
        Ok(ToClient::Goodbye(9)),
        Ok(ToClient::Replies(vec![entry(2, Status::Failed, 0)])),
        Err(FrameError::Reported("why".into())),
    ];
    assert_eq!(Vec::from_iter(decoded), expected);
}

#[test]
fn every_prefix_of_a_frame_is_torn() {
    let mut writer = FrameWriter::default();
    writer.call(1, 2, 3, b"body");
    let frame = frames(&mut writer).remove(0);
    for end in 2..frame.len() {
        assert_eq!(decode_calls(&frame[..end], 1 << 20), Err(FrameError::Torn), "{end}");
    }
    writer.reply(1, Status::Answered, b"body");
    let frame = frames(&mut writer).remove(0);
    for end in 2..frame.len() {
        assert_eq!(decode_to_client(&frame[..end]), Err(FrameError::Torn), "{end}");
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    let text = "ü".repeat(600);
    let greeting = server_greeting(Admission::Denied, Sizes::default(), &text);
    let head = decode_greeting(greeting.first_chunk().unwrap()).unwrap();
    assert_eq!((head.admission, head.text), (Admission::Denied, 512));
    assert!(text.starts_with(std::str::from_utf8(&greeting[SERVER_GREETING..]).unwrap()));
}

#[test]
fn a_welcome_in_another_version_is_an_error() {
    let sizes = Sizes { window: Window { calls: 1, bytes: 2 }, body_max: 3 };
    let mut greeting = server_greeting(Admission::Welcome, sizes, "");
    assert_eq!(decode_greeting(greeting.first_chunk().unwrap()).unwrap().sizes, sizes);
    greeting[8] = 9;
    assert_eq!(decode_greeting(greeting.first_chunk().unwrap()), Err(FrameError::Version(9, 9)));
    greeting[0] = b'H';
    assert_eq!(decode_greeting(greeting.first_chunk().unwrap()), Err(FrameError::Magic));
}
