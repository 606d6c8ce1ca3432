//! What came of a tool call, short enough for the session. Pure. A tool's output
//! is bounded where it is read, but as JSON it may take six times that.

use crate::message::{Block, LONGEST_MESSAGE, stored_length};
use crate::session::head_and_tail;

/// Room that a text has in any case: for a note.
const LEAST: usize = 1_024;

/// The blocks with as much of each as fits: texts lose their middle, an image
/// is there or not.
pub(super) fn fitted(blocks: Vec<Block>) -> Vec<Block> {
    let mut room = LONGEST_MESSAGE;
    blocks.into_iter().map(|it| one(it, &mut room)).collect()
}

fn one(mut block: Block, room: &mut usize) -> Block {
    let length = match &mut block {
        Block::Text(it) => {
            let mut bytes = it.text.len();
            let mut length = stored_length(&it.text);
            let most = (*room).max(LEAST);
            while length > most {
                bytes /= 2;
                let shorter = head_and_tail(&it.text, bytes);
                length = stored_length(&shorter);
                if length <= most {
                    it.text = shorter;
                }
            }
            length
        }
        Block::Image(it) if it.data.len() > *room => {
            return Block::text("[an image is left out here: it is too large for the session]");
        }
        Block::Image(it) => it.data.len(),
        Block::Thinking(_) | Block::ToolCall(_) | Block::Unknown(_) => 0,
    };
    *room = room.saturating_sub(length);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Image;

    fn length(blocks: &[Block]) -> usize {
        serde_json::to_string(blocks).map_or(0, |it| it.len())
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let data = "x".repeat(LONGEST_MESSAGE - 10);
        let image = Block::Image(Image { data, mime_type: "image/png".into(), ..Image::default() });
        let blocks = vec![image, Block::text("0123456789")];
        assert_eq!(fitted(blocks.clone()), blocks);
    }

    #[test]
    fn a_long_text_loses_its_middle_and_a_large_image_is_left_out() {
        for (filler, least) in [("x", 2), ("\0", 4), ("é", 2)] {
            let long = format!("begun{}ended", filler.repeat(LONGEST_MESSAGE));
            let got = fitted(vec![Block::text(long)]);
            let Block::Text(text) = &got[0] else { unreachable!() };
            assert!(text.text.starts_with("begun") && text.text.ends_with("ended"));
            assert!(text.text.contains("bytes are left out here"));
            assert!((LONGEST_MESSAGE / least..LONGEST_MESSAGE + 200).contains(&length(&got)));
        }
        let data = "x".repeat(LONGEST_MESSAGE + 1);
        let image = Block::Image(Image { data, mime_type: "image/png".into(), ..Image::default() });
        let full = Block::text("x".repeat(LONGEST_MESSAGE));
        let got = fitted(vec![image, full.clone(), full]);
        assert!(matches!(&got[0], Block::Text(it) if it.text.contains("image is left out")));
        assert!(length(&got) < LONGEST_MESSAGE + 2 * LEAST, "{}", length(&got));
    }
}
